"""A list that grows in a loop, and a list in a branch."""

from __future__ import annotations

import torch

from aotpipe import EntryPoint, Spec


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> object:
        found = []
        n = 0
        while x.abs().max() > 1 and n < 6:
            x = x / 2
            found.append(x.sum())
            n += 1
        found.append(x.max())
        tail = []
        while x.min() < -0.5 and len(tail) < 3:
            tail.append(x.min())
            x = x / 2
        found.extend(tail)
        more = [x * 2]
        if x.mean() > 0.45:
            more.append(x * 3)
        return torch.stack(found).sum(), len(found), found[-1], torch.stack(more).sum(0), len(more)


SPEC = Spec(
    name="lists",
    build=lambda: Model().eval(),
    entry_points={"forward": EntryPoint(args=(torch.linspace(-1, 1, 8),))},
)
