"""Values without elements: no op but a constant makes them."""

from __future__ import annotations

import torch

from tests.programs.through import check


class Empty(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        none = x[:, :0]
        shuffled = torch.nn.functional.pixel_shuffle(none.reshape(1, 0, 1, 1), 1)
        parts = torch.complex(none, none)
        byte = none.to(torch.uint8) * 2
        return (
            x + none.sum(1, keepdim=True),
            byte,
            parts @ parts.T,
            parts * 2,
            shuffled,
            torch.cat([none * 2, x], 1),
            none.reshape(0, 4),
        )


def test_program() -> None:
    check(Empty(), (torch.randn(3, 2),))
