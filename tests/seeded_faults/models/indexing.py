"""Reads and writes at positions from data."""

from __future__ import annotations

import torch

from aotpipe import EntryPoint, Spec


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.linspace(-3, 3, 40).reshape(10, 4), requires_grad=False)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> object:
        rows = self.table[ids]
        picked = x.gather(0, ids.abs() % 6)
        most = torch.zeros(6).scatter_reduce(0, ids.abs() % 6, x, "amax", include_self=False)
        least = x.scatter_reduce(0, ids.abs() % 6, x * 2, "amin")
        mean = torch.ones(6).scatter_reduce(0, ids.abs() % 6, x, "mean")
        product = torch.ones(6).scatter_reduce(0, ids.abs() % 6, x, "prod", include_self=False)
        put = torch.zeros(6).index_put((ids.abs() % 6,), x, accumulate=True)
        masked = torch.where(x > 0, x, 0.0).clone()
        masked[x < -0.5] = 7.0
        return rows, picked, most, least, mean, product, put, masked


SPEC = Spec(
    name="indexing",
    build=lambda: Model().eval(),
    entry_points={
        "forward": EntryPoint(args=(torch.linspace(-1, 1, 6), torch.tensor([0, 3, -1, 9, -10, 5])))
    },
)
