"""torchvision, and what imports it (timm, transformers), beside a CPU build of torch.

torchvision's wheel holds a C++ library that a CPU build of torch cannot load; its Python code then fails
while it registers fake kernels for ops that nobody declared. Declaring them first lets it import; no model
here calls them.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


@functools.cache
def make_torchvision_importable() -> torch.library.Library | None:
    """Declare the ops that torchvision needs; the library must outlive them, so the cache keeps it."""
    try:
        import torchvision  # noqa: F401
    except ModuleNotFoundError:
        return None
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS:
            library.define(schema)
        return library
    return None


def create_model(name: str, **options: Any) -> torch.nn.Module:
    """A timm model in eval mode with random weights."""
    make_torchvision_importable()
    import timm

    model: torch.nn.Module = timm.create_model(name, pretrained=False, **options)
    return model.eval()
