"""Control-flow ops of torch, whose bodies give what they were given."""

from __future__ import annotations

import torch

from aotpipe import EntryPoint, Spec


def _doubled(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * 2, x.detach()


def _moved(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x + 1, x - 1


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> object:
        return torch.cond(x.sum() > 3, _doubled, _moved, (x,))


SPEC = Spec(
    name="bodies",
    build=lambda: Model().eval(),
    entry_points={"forward": EntryPoint(args=(torch.linspace(-1, 1, 8),))},
)
