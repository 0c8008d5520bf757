"""Copies of views and the like: equal to eager."""

from __future__ import annotations

import pytest
import torch

from tests.programs.through import check
from tests.unit.backends.iree.decompositions.agree import check_op

OPS = ["permute_copy", "unbind_copy", "view_copy", "as_strided_copy", "nonzero_static"]


@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str) -> None:
    check_op(op, "float32", among=OPS)


class Strided(torch.nn.Module):
    def forward(self, x: torch.Tensor, number: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one = number * 2
        return (
            x.as_strided((2, 2), (4, 1), 1) + 1,
            x.as_strided((), (), 3) + 1,
            one.as_strided((), ()) + 1,
            one.as_strided((3, 1), (0, 1)) + 1,
        )


def test_program() -> None:
    check(Strided(), (torch.randn(3, 4), torch.tensor(3.0)))
