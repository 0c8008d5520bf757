"""Matrix products as the compiler takes it: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest
import torch

from aotpipe.passes.decompositions.blas import trilinear
from tests.programs.through import check
from tests.unit.backends.iree.decompositions.agree import check_op, decomposed

OPS = ["addbmm", "addr", "nn_functional_bilinear", "vdot"]


@pytest.mark.parametrize("dtype", ["float32"])
@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=OPS)


def test_half_precision_is_added_up_in_float32() -> None:
    x = torch.randn(2, 8, dtype=torch.float16)
    program = decomposed(torch.nn.Bilinear(8, 8, 3, bias=False).half(), (x, x))
    products = program.graph.find_nodes(op="call_function", target=torch.ops.aten.bmm.default)
    assert {node.meta["val"].dtype for node in products} == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float16])
def test_sums_of_products_of_three(dtype: torch.dtype) -> None:
    whole = torch.arange(24).reshape(4, 2, 3).to(dtype) % 5
    alone = [([1], [0], []), [2]], [([0], [2], [1]), [0, 2]], [([2], [1], [0]), []]
    lacking = [([0], [0], [0]), [2]], [([0, 1], [0], [0]), [2]]
    for expanded, summed in (*alone, *lacking):
        operands = [
            (whole + place)[tuple(0 if dim in gone else slice(None) for dim in range(3))]
            for place, gone in enumerate(expanded)
        ]
        wanted = torch._trilinear(*operands, *expanded, summed)
        torch.testing.assert_close(trilinear(*operands, *expanded, summed), wanted)


class Products(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left, right = x.to(torch.float8_e4m3fn), y.to(torch.float8_e4m3fn).t()
        scaled = torch._scaled_mm(left, right, s, s, out_dtype=torch.bfloat16)
        by_time = torch.conv_tbc(x.reshape(4, 4, 32), y.reshape(2, 32, 8), y[0, :8], 1)
        return (
            scaled,
            by_time,
            left.to(torch.int32),
            (x * 4).to(torch.int8) @ (y * 4).to(torch.int8).t(),
            torch.addmm(x[:, :16], x, y.t(), alpha=s.item()),
            x.abs() ** s.item(),
            torch._convolution(x[None], y[:, :16, None], None, [1], [0], [1], False, [0], 1, *(False,) * 4),
        )


def test_products_of_bytes_of_time_and_by_numbers_of_the_run() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(16, 32, generator=generator) for _ in range(2))
    check(Products(), (x, y, torch.tensor(0.5)), (x, y, torch.tensor(1.0)))
