"""ResNet-50 of timm with random weights; `SMALL` is the same net over small images, for quick tests."""

from __future__ import annotations

import torch

from aotpipe import Dim, EntryPoint, Spec
from models._vision import create_model


def build() -> torch.nn.Module:
    return create_model("resnet50")


def entry(size: int) -> EntryPoint:
    images = torch.linspace(-1.0, 1.0, 2 * 3 * size * size).reshape(2, 3, size, size)
    return EntryPoint(args=(images,), dynamic_shapes={"x": {0: Dim("batch", min=1, max=4)}})


SPEC = Spec(name="resnet50", build=build, entry_points={"forward": entry(224)})
SMALL = Spec(name="resnet50_small", build=build, entry_points={"forward": entry(64)})
