"""Padding that cuts: equal to eager, and to a compiled program."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import pad

from tests.programs.through import check
from tests.unit.backends.iree.decompositions.agree import check_op


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize("op", ["constant_pad_nd", "nn_functional_pad_constant"])
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, count=8)


class Shift(torch.nn.Module):
    """The time shift of linear-attention models, and a cut through the filling."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        byte = x.to(torch.int8)
        whole = pad(x.long(), (2, 1), value=3) * pad(byte.to(torch.uint8), (1, 2), value=7)
        return (
            whole,
            pad(byte, (1, 1), value=-2) * 3,
            pad(x, (0, 0, 1, -1)),
            pad(x, (-1, 2, -2, -1), value=3.0),
            pad(x > 0, (1, -1)),
        )


def test_program_cuts() -> None:
    check(Shift(), (torch.randn(2, 4, 5),))
