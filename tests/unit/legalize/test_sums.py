"""Sums of products of which a factor is broadcast: the compiler takes them one dim at a time."""

from __future__ import annotations

import torch

from tests.programs.through import check


class Weighted(torch.nn.Module):
    def forward(self, x: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            (x * row).sum(),
            (row.expand_as(x) * x).sum((1, 2)),
            (x * row).mean((0, 2), keepdim=True),
            (x.long() * row.long()).sum((-1, 0)),
            (x * x[0]).sum(),
            (x * row).sum(1),
            (x * row[0]).sum(),
        )


def test_program() -> None:
    check(Weighted(), (torch.randn(3, 4, 5), torch.randn(5)))


def test_a_batch_that_may_vary() -> None:
    batch = torch.export.Dim("batch", min=1, max=8)
    x, row = torch.randn(3, 4, 5), torch.randn(5)
    check(Weighted(), (x, row), (torch.randn(7, 4, 5), row), dynamic_shapes={"x": {0: batch}, "row": None})
