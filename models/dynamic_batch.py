"""A matrix product of two inputs whose sizes vary: `x` in its batch, `y` in its columns."""

from __future__ import annotations

import torch

from aotpipe import Dim, EntryPoint, Spec


class MatMul(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x, y)


SPEC = Spec(
    name="dynamic_batch",
    build=lambda: MatMul().eval(),
    entry_points={
        "forward": EntryPoint(
            args=(torch.ones(10, 5), torch.ones(5, 20)),
            dynamic_shapes={"x": {0: Dim("batch", min=1, max=64)}, "y": {1: Dim("columns", min=1, max=64)}},
        )
    },
)
