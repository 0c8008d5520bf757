"""Models of which a part is Python."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from aotpipe.islands.marking import eager_island
from aotpipe.model.spec import Dim

N = Dim("n", min=1, max=8)


@eager_island(arrays="numpy", reason="numpy's sort")
def order(x, width, scale=1.0):
    return np.sort(x, axis=-1)[:, :2] * np.float32(scale), int(width)


@eager_island
def positive(x):
    return x[x > 0]


@eager_island
def halves(x, words):
    return {"first": x[: x.shape[0] // 2], "all": [x + len(words)]}


class Sorted(nn.Module):
    """Has state, a branch, and an island that takes and gives a number."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(2, 4)
        self.calls = 0
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.total += x.sum()
        y, width = order(self.first(x), x.shape[0], scale=2.0)
        if y.sum() > 0:
            y = y * 2
        return self.second(y) * x.shape[0] + width + self.calls + self.total


class Masked(nn.Module):
    """Has a size that only the run knows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (positive(x - 0.5) * 2).sum()


class Factored(nn.Module):
    """Has an op without a lowering."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factors, _, _ = torch.linalg.ldl_factor_ex(x @ x.transpose(-1, -2))
        return torch.relu(factors) + x.sum()


class Branched(nn.Module):
    """Calls an island on one path."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return positive(x).sum()
        return x.sum()


class Chained(nn.Module):
    """Two islands in a row, one of which nobody reads, and a result of nested parts."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positive(x)
        parts = halves(x + 1, ["a", "b"])
        return parts["first"].sum() + parts["all"][0]
