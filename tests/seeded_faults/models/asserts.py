"""Asserts, and indices that may lie outside."""

from __future__ import annotations

import torch

from aotpipe import EntryPoint, Spec


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.linspace(-3, 3, 10), requires_grad=False)

    def forward(self, x: torch.Tensor) -> object:
        assert x.max() < 50, "too large"
        if x.sum() < -40:
            raise ValueError("too small")
        total = torch.zeros(())
        n = 0
        while x.abs().max() > 1 and n < 8:
            assert x.min() > -44, "too low"
            x = x / 2
            n += 1
        position = (x[1] * 12).to(torch.int64)
        return x * 2, self.table[position], n, total


SPEC = Spec(
    name="asserts",
    build=lambda: Model().eval(),
    entry_points={"forward": EntryPoint(args=(torch.linspace(-1, 1, 8),))},
)
