"""Images of other sizes."""

from __future__ import annotations

import torch

from aotpipe import EntryPoint, Spec


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> object:
        smooth = torch.nn.functional.interpolate(x, size=(5, 3), mode="bilinear", antialias=True)
        near = torch.nn.functional.interpolate(x, size=(7, 4), mode="nearest")
        exact = torch.nn.functional.interpolate(x, size=(4, 12), mode="nearest-exact")
        cubic = torch.nn.functional.interpolate(x, scale_factor=1.5, mode="bicubic")
        return smooth, near, exact, cubic, torch.nn.functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False)


SPEC = Spec(
    name="resample",
    build=lambda: Model().eval(),
    entry_points={"forward": EntryPoint(args=(torch.linspace(-1, 1, 48).reshape(1, 1, 6, 8),))},
)
