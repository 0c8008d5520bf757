"""Slices whose elements CUDA's kernels would read from other places."""

from __future__ import annotations

import re

import pytest
import torch

from aotpipe.backends.iree.fixes.input_phase import gpu_gathers
from aotpipe.backends.iree.fixes.rewrites import rewritten
from aotpipe.backends.iree.lower import importer
from tests.canaries import canary, compile_once
from tests.programs.mlir_text import ops_at
from tests.programs.through import legal

_READ: str = """\
util.func public @forward(%x: tensor<{source}>, %n: index) -> tensor<f32> {{
  %zero = arith.constant 0 : index
  {first}
  %s = tensor.extract_slice {rows}[{offsets}] [{sizes}] [{strides}] : tensor<{source}> to tensor<{made}> \
loc("model.py":3:0)
  {reshape}
  %e = tensor.extract {read}[{places}] : tensor<{shape}>
  %f = tensor.from_elements %e : tensor<f32>
  util.return %f : tensor<f32>
}}
"""
_TRANSPOSE = """%empty = tensor.empty() : tensor<8x4xf32>
  %t = linalg.transpose ins(%x : tensor<8x4xf32>) outs(%empty : tensor<8x4xf32>) permutation = [0, 1]"""


def read(source: str, offsets: str, sizes: str, made: str, **changes: str) -> bytes:
    """The module of a function that reads one element of a slice."""
    given = {
        "first": "",
        "rows": "%x",
        "strides": ", ".join(["1"] * len(offsets.split(", "))),
        "reshape": "",
        "read": "%s",
        "shape": made,
        "places": ", ".join(["%n"] * made.count("x")),
    }
    text = _READ.format(**{**given, **changes}, source=source, offsets=offsets, sizes=sizes, made=made)
    return text.encode()


@pytest.mark.parametrize(
    ("module", "stays"),
    [
        (read("2x8x5xf32", "0, 2, 0", "2, 2, 5", "2x2x5xf32"), False),
        (read("1x8x5xf32", "0, 2, 0", "1, 2, 5", "1x2x5xf32"), True),
        (read("4x8x5xf32", "1, 0, 0", "3, 8, 5", "3x8x5xf32"), True),
        (read("8x4xf32", "0, 1", "8, 2", "8x2xf32"), False),
        (read("8x4xf32", "0, 0", "4, 4", "4x4xf32", strides="2, 1"), False),
        (read("8x4xf32", "0, 1", "8, 1", "8xf32"), False),
        (read("8x4xf32", "3, 0", "1, 4", "4xf32"), True),
        (read("?x8x5xf32", "0, 2, 0", "%n, 2, 5", "?x2x5xf32"), False),
        (read("?x5xf32", "2, 0", "%n, 5", "?x5xf32"), True),
        (read("8x?xf32", "2, 0", "4, %n", "4x?xf32"), False),
        (read("8x4xf32", "2, 0", "4, 4", "4x4xf32", first=_TRANSPOSE, rows="%t"), False),
        (
            read(
                *("2x8x5xf32", "0, 2, 0", "2, 2, 5", "2x2x5xf32"),
                reshape="%r = tensor.collapse_shape %s [[0, 1], [2]] : "
                "tensor<2x2x5xf32> into tensor<4x5xf32>",
                read="%r",
                shape="4x5xf32",
                places="%n, %n",
            ),
            False,
        ),
    ],
)
def test_slices_whose_rows_lie_apart_are_copied_before_they_are_read(module: bytes, stays: bool) -> None:
    changed = rewritten(module, [gpu_gathers.FIX.apply])
    assert (changed is None) == stays
    if changed is not None:
        assert changed.count(b"util.optimization_barrier") == 1
        assert len(ops_at(changed, '"model.py":3:0')) >= 2


def test_two_reads_share_a_copy() -> None:
    module = read("8x4xf32", "0, 1", "8, 2", "8x2xf32").replace(
        b"%f =", b"%g = tensor.extract %s[%zero, %zero] : tensor<8x2xf32>\n  %f ="
    )
    changed = rewritten(module, [gpu_gathers.FIX.apply])
    assert changed is not None
    assert changed.count(b"util.optimization_barrier") == 1


def test_a_read_of_an_argument_stays() -> None:
    module = b"""\
util.func public @forward(%x: tensor<8x4xf32>, %n: index) -> f32 {
  %e = tensor.extract %x[%n, %n] : tensor<8x4xf32>
  util.return %e : f32
}
"""
    assert rewritten(module, [gpu_gathers.FIX.apply]) is None


class Gathered(torch.nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x[:, 3:5][:, :, index]


def strides() -> set[int]:
    """What CUDA's kernels multiply places by."""
    program = legal(Gathered(), (torch.ones(3, 9, 7), torch.tensor([3, 0])))
    payload = compile_once(importer.lower(program), "iree-cuda-sm_80").payload
    return set(map(int, re.findall(rb"(?:mul|mad)\.[\w.]+\s[^;]*?, (\d+)[,;]", payload)))


def test_a_kernel_knows_how_far_rows_lie_apart() -> None:
    assert strides() & {9 * 7, 9 * 7 * 4}


@canary(gpu_gathers.FIX)
def test_iree_knows_without() -> None:
    assert strides() & {9 * 7, 9 * 7 * 4}
