"""Loops with a bound, a break, a continue and an else."""

from __future__ import annotations

import torch

from aotpipe import EntryPoint, Spec


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> object:
        n = 0
        total = torch.zeros(())
        y = x
        while y.abs().max() > 1 and n < 12:
            y = y / 2
            n += 1
            if y.sum() > 20:
                break
            if y.min() < -9:
                continue
            total = total + y.sum()
        else:
            total = total + 100
        if x[1] > 2:
            total = total + torch.tensor(2.0)
        k = 0
        while k < x[0].abs():
            k += 2
            if k > 30:
                break
        return y, n, total, k


SPEC = Spec(
    name="loops",
    build=lambda: Model().eval(),
    entry_points={"forward": EntryPoint(args=(torch.linspace(-1, 1, 8),))},
)
