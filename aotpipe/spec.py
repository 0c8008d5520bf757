"""What to build: a model, how it is called, and what may vary between calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Dim:
    """A dynamic size: its name and range, both ends included.

    One Dim in two places means that the two sizes are equal. `2 * d`, `d + 1`, `d - 1` give derived sizes.
    `aotpipe.AUTO` lets torch.export find out whether the size can vary.
    """

    name: str
    min: int = 1
    max: int | None = None
    scale: int = 1
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPoint:
    """One way to call the model.

    Attributes:
        args, kwargs: Example inputs; any pytree of tensors, numbers, None, strings, dataclasses.
        dynamic_shapes: Input name (dotted for nested ones, or torch.export's own nested form) -> {dim: Dim}.
        value_ranges: Input name -> (lowest, highest) value that a call may pass.
        method: The model's method to call.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None
    value_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    method: str = "forward"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A model and its entry points.

    Attributes:
        name: Names the bundle.
        build: Makes the model, in eval mode; called once per build.
        entry_points: Name -> how to call it; they share weights and state.
        tolerance: The allowed multiple of eager float32's own error against float64.
        seed: Seeds `build` and the parity inputs.
    """

    name: str
    build: Callable[[], torch.nn.Module]
    entry_points: Mapping[str, EntryPoint]
    tolerance: float | None = None
    seed: int = 0
