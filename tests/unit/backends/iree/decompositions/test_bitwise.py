"""Bits: Python's operators, and a number on either side."""

from __future__ import annotations

import pytest
import torch

from tests.programs.through import check
from tests.unit.backends.iree.decompositions.agree import check_op

OPS = ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"]


@pytest.mark.parametrize("dtype", ["int64", "uint8"])
@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=OPS)


class Operators(torch.nn.Module):
    def forward(self, x: torch.Tensor, byte: torch.Tensor) -> tuple[torch.Tensor, ...]:
        small = x & 7
        return (
            x | 1,
            5 ^ x,
            x << 2,
            x >> 1,
            x << small,
            -x >> small,
            1 << small,
            torch.bitwise_right_shift(2000, small),
            (x > 3) | True,
            byte << 1,
            byte >> 2,
            byte | 1,
            byte & x,
            ~byte,
        )


def test_program() -> None:
    x = torch.tensor([0, 1, 7, 12, 2**40, 99])
    check(Operators(), (x, torch.tensor([0, 1, 127, 128, 200, 255], dtype=torch.uint8)))
