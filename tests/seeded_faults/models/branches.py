"""Branches that the example does not take, one side with a product of matrices."""

from __future__ import annotations

import torch

from aotpipe import EntryPoint, Spec


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 40000).reshape(200, 200), requires_grad=False)

    def forward(self, x: torch.Tensor) -> object:
        total = x.sum()
        if total > 500:
            y = (x @ self.weight).tanh() * 3
        elif total < -500:
            y = x.flip(0) - 2
        else:
            y = x * 0.5
        z = 1.0 if x.max() > 70 else 2.0
        if x.min() > -60 and x.max() < 60:
            y = y + 1
        if x[0] > 55 or x[1] < -55:
            y = y * 2
        if not x[2] > 33:
            y = y - 0.25
        if -40 < x[3] < 40:
            y = y + 0.125
        return y * z


SPEC = Spec(
    name="branches",
    build=lambda: Model().eval(),
    entry_points={"forward": EntryPoint(args=(torch.linspace(-1, 1, 200),))},
)
