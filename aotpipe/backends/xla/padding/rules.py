"""Rules for ops on padded values: what a rule is given, and those that many ops have in common.

A rule takes a `Call`, and gives arrays with plain axes, or `Padded` values. What it gives must be right
wherever it counts, whatever lies in the padding of the operands: NaN, infinities, indices that point nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from aotpipe.backends.xla.padding.layout import ONE, Arena, Axis, Padded, padded
from aotpipe.backends.xla.padding.sizes import Size, Unpaddable, scalar
from aotpipe.backends.xla.values import INT32, Array, DType, axes_of, axis_of, cast, is_array


@dataclass(frozen=True, slots=True)
class Call:
    """An op and its operands: tensors as `Padded`, numbers that padding makes two as `Size`."""

    arena: Arena
    node: fx.Node
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    lower: Callable[..., Any]

    @property
    def value(self) -> Any:
        """The fake value of the result, or the tuple of them."""
        return self.node.meta["val"]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of the result, all plain."""
        return self.arena.axes(self.value)

    @property
    def is_reached(self) -> bool:
        """Whether anything of it is padded."""
        if any(
            isinstance(each, Size) or (isinstance(each, Padded) and each.padded_axes)
            for each in self.leaves()
        ):
            return True
        values = self.value if isinstance(self.value, tuple | list) else [self.value]
        tensors = [each for each in values if isinstance(each, torch.Tensor)]
        return any(any(map(padded, self.arena.axes(each))) for each in tensors)

    def leaves(self) -> list[Any]:
        """The operands, those in lists too."""
        found: list[Any] = []
        fx.node.map_aggregate((tuple(self.args), dict(self.kwargs)), found.append)
        return found

    @property
    def out(self) -> Any:
        """What the op's own lowering must give."""
        if isinstance(self.value, torch.Tensor):
            return self.arena.out(self.value)
        return tuple(self.arena.out(each) if isinstance(each, torch.Tensor) else None for each in self.value)

    @property
    def first(self) -> Padded:
        """The first operand."""
        found = self.args[0]
        assert isinstance(found, Padded), found
        return found

    def get(self, place: int, name: str, default: Any = None) -> Any:
        """An operand by its place or its name."""
        return self.args[place] if place < len(self.args) else self.kwargs.get(name, default)

    def true(self, x: Padded, axis: int) -> Array:
        """How many places of an axis count, as a 0-d int32 array."""
        return array_of(self.arena.true(x.axes[axis]))

    def as_it_is(self, *front: Any, **changes: Any) -> Any:
        """What the op's own lowering gives in the bucket; sizes are their true values.

        Args:
            front: Replace the first operands.
            changes: Replace operands by name.
        """
        operands = ((*front, *self.args[len(front) :]), {**self.kwargs, **changes})
        args, kwargs = fx.node.map_aggregate(operands, bare)
        return self.lower(self.out, *args, **kwargs)

    def results(self, found: Any, axes: Callable[[torch.Tensor], tuple[Axis, ...]]) -> Any:
        """What a lowering gave, with the axes that `axes` makes for each fake value."""
        if isinstance(self.value, torch.Tensor):
            return Padded(found, axes(self.value))
        return [Padded(array, axes(value)) for value, array in zip(self.value, found, strict=True)]


Rule = Callable[[Call], Any]


def require(axes: Sequence[Axis], what: str) -> None:
    """Refuse an op along axes that are padded.

    Raises:
        Unpaddable: One of them is.
    """
    if any(map(padded, axes)):
        raise Unpaddable(f"{what} of a dim that is padded")


def bare(value: Any) -> Any:
    """An operand as the lowerings take it."""
    if isinstance(value, Padded):
        return value.array
    return value.number if isinstance(value, Size) else value


def true_number(value: Any) -> Any:
    """A size's true value: an int, or a 0-d int32 array."""
    if isinstance(value, Size):
        return value.true
    if isinstance(value, Padded):
        return cast(value.array.reshape(()), INT32)
    return cast(value, INT32) if is_array(value) else value


def bucket_number(value: Any) -> Any:
    """A size's value in the bucket."""
    return value.bucket if isinstance(value, Size) else value


def array_of(value: Any) -> Array:
    """A true size as a 0-d int32 array."""
    return scalar(true_number(value))


def elementwise(call: Call) -> Padded:
    """An op that computes each element from those at its place: padding stays where it is."""
    operands = [each for each in call.leaves() if isinstance(each, Padded)]
    aligned, axes = call.arena.aligned(operands, call.value.dim())
    left = iter(aligned)

    def replaced(each: Any) -> Any:
        return next(left) if isinstance(each, Padded) else each

    args, kwargs = fx.node.map_aggregate((tuple(call.args), dict(call.kwargs)), replaced)
    return Padded(call.as_it_is(*args, **kwargs), axes)


def of_plain(call: Call) -> Any:
    """An op that counts places from the front, or that makes a tensor from nothing: plain axes in and out."""
    return call.as_it_is(*(call.arena.plain(each) for each in call.args[:1] if isinstance(each, Padded)))


def reduced(fill: Callable[[DType], Any], axes: Callable[..., tuple[int, ...]] = axes_of) -> Rule:
    """A reduction that a number does not change: by dtype, 0 of a sum, 1 of a product."""

    def rule(call: Call) -> Padded:
        x = call.first
        own = axes(call.get(1, "dim"), x.ndim)
        found = call.as_it_is(call.arena.filled(x, own, fill(x.array.dtype)))
        return Padded(found, kept(x, own, call.value.dim()))

    return rule


def kept(value: Padded, axes: Sequence[int], rank: int) -> tuple[Axis, ...]:
    """The axes that a reduction leaves; those that it reduces are of size 1 or gone."""
    if rank == value.ndim:
        return tuple(ONE if axis in axes else own for axis, own in enumerate(value.axes))
    return tuple(own for axis, own in enumerate(value.axes) if axis not in axes)


def along(place: int, fill: Callable[[Call], Any] | None = None) -> Rule:
    """An op along the dim that an operand names, which has its own axis in the result.

    Args:
        place: Of the operand.
        fill: Gives the number that the padding of the axis is to have; what it is does not matter where None.
    """

    def rule(call: Call) -> Any:
        if not call.first.ndim:
            return call.as_it_is()
        axis = axis_of(call.get(place, "dim", -1), call.first.ndim)
        x = call.arena.plain(call.first, (axis,))
        if fill is not None:
            x = call.arena.filled(x, (axis,), fill(call))
        return call.results(
            call.as_it_is(x),
            lambda value: (*x.axes[:axis], call.arena.axes(value)[axis], *x.axes[axis + 1 :]),
        )

    return rule
