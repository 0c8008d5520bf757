"""Signs of constants, and what is cut off them."""

from __future__ import annotations

import torch

from aotpipe.backends.iree.fixes.graphs import constant_signs
from tests.canaries import canary
from tests.programs.through import check


class Signs(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        constants = [torch.full((3,), 2.5, dtype=dtype) for dtype in (torch.float32, torch.float64)]
        return [
            result
            for value in constants
            for result in (
                x + value.to(torch.int64),
                y + value.trunc(),
                y + value.sign(),
                y.trunc() + y.sign(),
            )
        ]


CALL = (torch.arange(3), torch.tensor([-1.5, -0.0, float("inf")]))


def test_they_are_eagers() -> None:
    check(Signs(), CALL)


@canary(constant_signs.FIX)
def test_iree_folds_them_right_without() -> None:
    check(Signs(), CALL)
