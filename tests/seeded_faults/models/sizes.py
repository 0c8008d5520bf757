"""What depends on the size of an input."""

from __future__ import annotations

import torch

from aotpipe import Dim, EntryPoint, Spec


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> object:
        n = x.shape[0]
        half = x[: n // 2].sum()
        padded = torch.nn.functional.pad(x, (1, 2))
        steps = torch.arange(n) * 2
        mean = x.sum() / n
        if n > 4:
            mean = mean + 1
        return half, padded, steps, mean, x.flip(0), n * 3, n - x


SPEC = Spec(
    name="sizes",
    build=lambda: Model().eval(),
    entry_points={
        "forward": EntryPoint(
            args=(torch.linspace(-1, 1, 8),), dynamic_shapes={"x": {0: Dim("n", min=2, max=17)}}
        )
    },
)
