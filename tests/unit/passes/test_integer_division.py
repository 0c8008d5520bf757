"""Whole-number divisions of constants and of large numbers, beside eager."""

from __future__ import annotations

import torch

from tests.programs.through import check


class Constants(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        seven = torch.full((3,), -7)
        return (
            x + seven // 2,
            x + 7 * seven // -2,
            x + (seven - 1)[:1] * 3 // 5,
            x + seven // torch.full((3,), 2),
            x + torch.div(seven, 2, rounding_mode="trunc"),
            x + seven % 3,
            x + seven.to(torch.int32) // 2,
            x + torch.full_like(x, -7) // 2,
        )


def test_program_of_constants() -> None:
    rows = torch.export.Dim("rows", min=1, max=9)
    x = torch.zeros(3, dtype=torch.int64)
    check(Constants(), (x,), dynamic_shapes=None)
    check(Sized(), (x,), (torch.ones(5, dtype=torch.int64),), dynamic_shapes={"x": {0: rows}})


class Sized(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + torch.full_like(x, -7) // 2, x - torch.full((x.shape[0],), -9) % 4


class Large(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x // 2, x // 7, x // -7, x.clamp(-100, 100) // -7, x[0] // 3


def test_program_of_large_numbers() -> None:
    check(Large(), (torch.tensor([2**53 + 1, 2**62 + 1, -(2**62) - 1, -7, 7, -(2**53) - 3, 0]),))
