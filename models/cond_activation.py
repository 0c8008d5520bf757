"""An activation chosen by the data: relu where the mean is positive, else sigmoid.

In plain Python this is `if x.mean() > 0:`, which breaks a graph; here it is `torch.cond`.
"""

from __future__ import annotations

import torch

from aotpipe import Dim, EntryPoint, Spec


class DynamicActivation(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.mean() > 0, torch.relu, torch.sigmoid, (x,))


SPEC = Spec(
    name="cond_activation",
    build=lambda: DynamicActivation().eval(),
    entry_points={
        "forward": EntryPoint(
            args=(torch.linspace(-1.0, 2.0, 24).reshape(3, 8),),
            dynamic_shapes={"x": {0: Dim("batch", min=1, max=64)}},
        )
    },
)
