"""One op of a graph with its operands, as the rules see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from aotpipe.backends.xla.padding.layout import Arena, Axis, Padded, padded
from aotpipe.backends.xla.padding.sizes import Size, Unpaddable, scalar
from aotpipe.backends.xla.values import INT32, Array, Out, cast, is_array

Lowering = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Call:
    """An op and its operands: tensors as `Padded`, numbers that padding makes two as `Size`."""

    arena: Arena
    node: fx.Node
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @property
    def value(self) -> Any:
        """The fake value of the result, or the tuple of them."""
        return self.node.meta["val"]

    @property
    def is_reached(self) -> bool:
        """Whether anything of it is padded."""
        if any(
            isinstance(each, Size) or (isinstance(each, Padded) and each.padded_axes)
            for each in self._leaves()
        ):
            return True
        values = self.value if isinstance(self.value, tuple | list) else [self.value]
        tensors = [each for each in values if isinstance(each, torch.Tensor)]
        return any(any(axis[0].free_symbols for axis in self.arena.axes(each)) for each in tensors)

    def _leaves(self) -> Iterator[Any]:
        found: list[Any] = []
        fx.node.map_aggregate((tuple(self.args), dict(self.kwargs)), found.append)
        return iter(found)

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

    def as_it_is(
        self, lower: Lowering, args: Sequence[Any] | None = None, *, out: Any = None, **changes: Any
    ) -> Any:
        """What the op's own lowering gives in the bucket; sizes are their true values."""
        operands = (tuple(self.args if args is None else args), {**self.kwargs, **changes})
        plain, named = fx.node.map_aggregate(operands, bare)
        return lower(self.out if out is None else out, *plain, **named)


def require(call: Call, *axes: Axis, what: str) -> None:
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


def result(call: Call, array: Array, axes: Sequence[Axis]) -> Padded:
    """A result with axes of its own."""
    out: Out = call.out
    assert tuple(array.shape) == out.shape, f"shape {tuple(array.shape)} for {out.shape}"
    return Padded(array, tuple(axes))
