"""Bits by Python's operators, and unsigned bytes beside other dtypes: 200 is not -56."""

from __future__ import annotations

import pytest
import torch

from tests.programs.through import check
from tests.sweep import sweep
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


class Mixed(torch.nn.Module):
    def forward(self, byte: torch.Tensor, other: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            "scaled": byte * 0.5 + 1,
            "reciprocal": torch.reciprocal(byte + 1),
            "number": (byte + 1) > 200,
            "equal": byte == 200,
            "add": byte + other,
            "mul": other * byte,
            "div": byte / other,
            "less": byte < other,
            "or": byte | other if not other.is_floating_point() else byte,
            "maximum": torch.maximum(byte, other),
            "remainder": byte % other if other.dtype != torch.bool else byte,
            "where": torch.where(byte == 3, byte, other),
            "cat": torch.cat([byte, other]),
        }


@pytest.mark.parametrize("dtype", sweep([torch.int64, torch.float16, torch.bool, torch.uint8], quick=1))
def test_program_promotes_as_eager(dtype: torch.dtype) -> None:
    byte = torch.tensor([0, 1, 127, 128, 200, 255], dtype=torch.uint8)
    check(Mixed(), (byte, torch.tensor([3, 1, 127, 100, 100, 5]).to(dtype)))
