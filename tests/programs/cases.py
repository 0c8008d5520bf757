"""What the tables of unedited models are made of, and all of them by name.

A table maps a name to a function that gives the model, example calls (the first is the example of the export;
together they take every branch, and no, one and many trips), and dynamic shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Calls = list[dict[str, Any]]
Case = tuple[nn.Module, Calls, Any]
Models = dict[str, Callable[[], Case]]


def uniform(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def case(models: Models, name: str) -> Case:
    """A model with seeded weights, in eval mode."""
    torch.manual_seed(0)
    model, calls, shapes = models[name]()
    return model.eval(), calls, shapes
