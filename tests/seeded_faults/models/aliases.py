"""Views that are written through, also in branches."""

from __future__ import annotations

import torch

from aotpipe import EntryPoint, Spec


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> object:
        y = x.clone()
        view = y[1:3]
        view += 5
        if x.sum() > 20:
            view *= 2
            other = y
        else:
            other = y.clone()
        other[0] = 9
        pairs = y.view(2, 4)
        pairs[1, 2] = -1
        return y, other * 1, view * 1


SPEC = Spec(
    name="aliases",
    build=lambda: Model().eval(),
    entry_points={"forward": EntryPoint(args=(torch.linspace(-1, 1, 8),))},
)
