"""State that a call changes before it raises."""

from __future__ import annotations

import torch

from aotpipe import EntryPoint, Spec


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(8))
        self.calls = 0
        self.errors = 0

    def forward(self, x: torch.Tensor) -> object:
        self.calls += 1
        self.total += x
        if x.sum() > 40:
            self.errors += 1
            self.total *= 0.5
            raise ValueError("too large")
        self.calls += 1
        if x.min() < -30:
            raise ValueError("too low")
        return x + self.calls, self.total * 1, self.errors


SPEC = Spec(
    name="raises",
    build=lambda: Model().eval(),
    entry_points={"forward": EntryPoint(args=(torch.linspace(-1, 1, 8),))},
)
