"""Lines that keep a value apart."""

from __future__ import annotations

from aotpipe.backends.iree.fixes.fusion_barriers import kept, sizes


def test_fixed_sizes_need_no_more_than_a_barrier() -> None:
    assert sizes("7", "%x", "tensor<2x3xf32>") == ([], [])
    assert kept("7", "%x", "tensor<2x3xf32>", []) == ["%7 = util.optimization_barrier %x : tensor<2x3xf32>"]


def test_each_size_that_varies_is_read_before_and_told_after() -> None:
    lines, names = sizes("7", "%x", "tensor<?x3x?xf32>")
    assert names == ["%size0_7", "%size2_7"]
    assert lines[1] == "%size0_7 = tensor.dim %x, %at0_7 : tensor<?x3x?xf32>"
    assert lines[2] == "%at2_7 = arith.constant 2 : index"
    *_, last = kept("7", "%x", "tensor<?x3x?xf32>", names)
    assert last == "%7 = flow.tensor.tie_shape %kept_7 : tensor<?x3x?xf32>{%size0_7, %size2_7}"
