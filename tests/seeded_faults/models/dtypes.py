"""Casts on the way, where fewer bits would show."""

from __future__ import annotations

import torch

from aotpipe import EntryPoint, Spec


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> object:
        wide = (x.double() * 1e8).cumsum(0)
        back = (wide - 1e8).float()
        whole = (x * 1000).to(torch.int64) * 3000000
        small = x.half().float() * 3
        flags = (x > 0).sum()
        return back, whole, small, flags, x.sum(dtype=torch.float64), (x > 0.5).to(torch.uint8) + 255


SPEC = Spec(
    name="dtypes",
    build=lambda: Model().eval(),
    entry_points={"forward": EntryPoint(args=(torch.linspace(-1, 1, 8),))},
)
