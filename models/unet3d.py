"""A 3-D U-Net (Çiçek et al. 2016): a volume in, the class scores of each voxel out; random weights."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import torch
from torch import nn

from aotpipe import Dim, EntryPoint, Spec


def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv3d(channels, outputs, 3, padding=1, bias=False),
            nn.InstanceNorm3d(outputs, affine=True),
        ]
        layers.append(nn.LeakyReLU(0.01, inplace=True))
    return nn.Sequential(*layers)


class UNet3d(nn.Module):
    def __init__(self, inputs: int, classes: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        pairs = list(pairwise((inputs, *widths)))
        self.down = nn.ModuleList(double_conv(*pair) for pair in pairs)
        self.pool = nn.MaxPool3d(2)
        ups = [(wide, narrow) for narrow, wide in pairwise(widths)][::-1]
        self.up = nn.ModuleList(nn.ConvTranspose3d(wide, narrow, 2, stride=2) for wide, narrow in ups)
        self.merge = nn.ModuleList(double_conv(2 * narrow, narrow) for _, narrow in ups)
        self.head = nn.Conv3d(widths[0], classes, 1)

    def forward(self, volume: torch.Tensor) -> torch.Tensor:
        skips: list[torch.Tensor] = []
        x = volume
        for block in self.down:
            x = block(self.pool(x) if skips else x)
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skips.pop(), up(x)], dim=1))
        return self.head(x)


def build(widths: tuple[int, ...]) -> nn.Module:
    return UNet3d(4, 3, widths).eval()


def entry(size: int) -> EntryPoint:
    volume = torch.linspace(-1.0, 1.0, 2 * 4 * size**3).reshape(2, 4, size, size, size)
    return EntryPoint(args=(volume,), dynamic_shapes={"volume": {0: Dim("batch", min=1, max=3)}})


SPEC = Spec(name="unet3d", build=partial(build, (32, 64, 128, 256)), entry_points={"forward": entry(32)})
SMALL = Spec(name="unet3d_small", build=partial(build, (8, 16, 32)), entry_points={"forward": entry(16)})
