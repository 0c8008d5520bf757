"""Counters, a buffer and a cache that calls change."""

from __future__ import annotations

import torch

from aotpipe import EntryPoint, Spec


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(8))
        self.calls = 0
        self.last = None
        self.ring = torch.zeros(3, 8)

    def forward(self, x: torch.Tensor) -> object:
        self.calls += 1
        if x.sum() > 30:
            self.total += x
        before = x if self.last is None else self.last
        self.last = x * 2
        self.ring[self.calls % 3] = x
        if self.calls >= 3 and x.max() > 8:
            self.calls = 0
        return self.total * 1, before + 1, self.calls, self.ring.sum(0)


SPEC = Spec(
    name="state",
    build=lambda: Model().eval(),
    entry_points={"forward": EntryPoint(args=(torch.linspace(-1, 1, 8),))},
)
