"""Models with branches, loops and asserts, each in a file so that its lines are known."""

from __future__ import annotations

from typing import Any

import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.core.dims import Dim
from aotpipe.core.stages import Exported
from aotpipe.export import export
from aotpipe.model.spec import EntryPoint, as_spec

X = torch.linspace(-1, 1, 6)


class Nested(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.min() > -1000, "too small"
        self.calls += 1
        if x.sum() > 40:
            y = x * 2
        elif x.mean() < -3 and self.calls > 1:
            y = x - 1
        else:
            y = x
        return y


class Halving(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        n = 0
        while x.abs().max() > 1 and n < 20:
            x = x / 2
            n += 1
        return x, n


class Fixed(torch.nn.Module):
    """Its loop has the same trips in every call, and its branch one side."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = torch.zeros((), dtype=torch.int64)
        while n < 3:
            x = x + 1
            n = n + 1
        return x


class Needle(torch.nn.Module):
    """A branch that few integers reach."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x[1] * 3 == 741:
            return x + 1
        return x * 2


class Unreachable(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.abs().sum() < -1:
            return x + 1
        return x * 2


def exported(model: torch.nn.Module, x: torch.Tensor = X, **options: Any) -> Exported:
    return export(canonicalize(as_spec(model.eval(), args=(x,), name="model", **options)))


ROWS = {"x": {0: Dim("n", min=2, max=9)}}


class Summed(torch.nn.Module):
    """Two entry points, of which one has a branch on what both leave in the state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))

    def add(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x.abs().max()
        return self.total * 1

    def ask(self, x: torch.Tensor) -> torch.Tensor:
        if self.total > 0.5:
            return x + 1
        return x * 2


def summed() -> Exported:
    entries = {name: EntryPoint(args=(X,), method=name) for name in ("add", "ask")}
    return export(canonicalize(as_spec(Summed().eval(), entry_points=entries, name="summed")))
