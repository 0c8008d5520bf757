"""Short programs as people write them, Python deciding on tensors, with calls that take each path.

`PROGRAMS` maps a name to a function that gives the model, and its calls; the first is the example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Call = tuple[torch.Tensor, ...]
Program = tuple[Callable[[], Any], tuple[Call, ...]]
PROGRAMS: dict[str, Program] = {}


def program(*calls: Any) -> Callable[[Any], Any]:
    """Note a function or a class of a module with its calls; a call of one tensor is that tensor."""
    made = tuple(each if isinstance(each, tuple) else (each,) for each in calls)

    def note(model: Any) -> Any:
        PROGRAMS[model.__name__] = (model if isinstance(model, type) else lambda: model, made)
        return model

    return note


def seeded(*shape: int, seed: int = 0) -> torch.Tensor:
    """Numbers of a normal distribution, the same each time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
