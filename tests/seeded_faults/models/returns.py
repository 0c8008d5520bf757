"""Returns from the middle of branches and of a loop."""

from __future__ import annotations

import torch

from aotpipe import EntryPoint, Spec


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> object:
        if x.sum() > 90:
            return x * 2
        for i in range(3):
            if x[i] > 44:
                return x + i
        if x.mean() < -9:
            return -x
        return x.cos()


SPEC = Spec(
    name="returns",
    build=lambda: Model().eval(),
    entry_points={"forward": EntryPoint(args=(torch.linspace(-1, 1, 8),))},
)
