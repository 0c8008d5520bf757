"""Numbers are loaded where kernels wrote them, for devices that share the host's memory."""

from __future__ import annotations

import pytest
from iree.compiler import ir

from aotpipe.backends.iree.lower import host_reads
from aotpipe.core.targets import Target

MODULE = b"""
#loc = loc("model.py":3:0)
func.func @f(%x: tensor<i64>, %y: tensor<1x1xi1>, %z: tensor<2xi64>, %w: tensor<f32>) -> (i64, i1, i64, f32) {
  %c0 = arith.constant 0 : index
  %extracted = tensor.extract %x[] : tensor<i64> loc(#loc)
  %extracted_0 = tensor.extract %y[%c0, %c0] : tensor<1x1xi1>
  %extracted_1 = tensor.extract %z[%c0] : tensor<2xi64>
  %extracted_2 = tensor.extract %w[] : tensor<f32>
  return %extracted, %extracted_0, %extracted_1, %extracted_2 : i64, i1, i64, f32
}
"""


def test_tensors_of_one_whole_number_or_bool_are_loaded() -> None:
    made = host_reads.in_place(MODULE)
    with ir.Context(), ir.Location.unknown():
        assert ir.Module.parse(made.decode()).operation.verify()
    assert made.count(b"hal.buffer.load") == made.count(b"hal.tensor.export") == 2
    assert made.count(b"tensor.extract ") == 2
    assert b"[%at_extracted] : i64 loc(#loc)" in made


def test_what_was_rewritten_stays_as_it_is() -> None:
    made = host_reads.in_place(MODULE)
    assert host_reads.in_place(made) == made


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (["iree-cpu-host"], True),
        (["iree-cpu-aarch64"], True),
        (["iree-vmvx"], True),
        (["iree-cuda-sm_80"], False),
        (["iree-vulkan"], False),
        (["iree-cpu-host", "iree-vulkan"], False),
    ],
)
def test_a_gpus_memory_is_not_the_hosts(targets: list[str], expected: bool) -> None:
    assert host_reads.can_be_in_place(map(Target.parse, targets)) == expected
