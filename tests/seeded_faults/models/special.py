"""Special functions, quantization and norms."""

from __future__ import annotations

import torch

from aotpipe import EntryPoint, Spec


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.batch = torch.nn.BatchNorm1d(8)
        self.batch.running_mean.add_(0.3)
        self.batch.running_var.mul_(2.5)

    def forward(self, x: torch.Tensor) -> object:
        gamma = torch.special.polygamma(2, x.abs() + 0.5)
        third = torch.special.polygamma(1, x)
        bessel = torch.special.spherical_bessel_j0(x * 3)
        levels = torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15)
        turned = torch.polar(x.abs(), x)
        return (
            gamma,
            third,
            bessel,
            levels,
            turned.conj(),
            self.norm(x),
            self.batch(x.unsqueeze(0)),
            3 - 2 * x,
        )


SPEC = Spec(
    name="special",
    build=lambda: Model().eval(),
    entry_points={"forward": EntryPoint(args=(torch.linspace(0.1, 2, 8),))},
)
