"""Values whose axes may be padded, and rules for ops on them: those that many ops have in common.

An axis is a product of factors, the slowest first. Of each factor the first `true` of its places count, so
that `[batch, heads, seq]` seen as `[batch, heads * seq]` needs no element moved: the factors are `heads` and
`seq`. An axis of one factor is plain: a prefix of it counts. `Arena` makes masks and moves elements where an
op needs plain axes.

A rule takes a `Call`, and gives arrays with plain axes, or `Padded` values. What it gives must be right
wherever it counts, whatever lies in the padding of the operands: NaN, infinities, indices that point nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

import jax.numpy as jnp
import sympy
import torch
from jax import lax
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map_only

from aotpipe.backends.xla.padding.sizes import Expr, Extents, Size, Unpaddable, scalar
from aotpipe.backends.xla.values import (
    INT32,
    Array,
    DType,
    Out,
    axes_of,
    axis_of,
    cast,
    constant,
    dtype_of,
    is_array,
)

Axis = tuple[Expr, ...]
ONE: Final[Axis] = (sympy.Integer(1),)


@dataclass(frozen=True, slots=True)
class Padded:
    """An array and its axes."""

    array: Array
    axes: tuple[Axis, ...]

    @property
    def ndim(self) -> int:
        """How many axes."""
        return len(self.axes)

    def is_padded(self, axis: int) -> bool:
        """Whether an axis holds places that do not count."""
        return padded(self.axes[axis])

    @property
    def size(self) -> Expr:
        """How many elements count."""
        return product([factor for axis in self.axes for factor in axis])


def padded(axis: Axis) -> bool:
    """Whether an axis holds places that do not count."""
    return any(factor.free_symbols for factor in axis)


def product(axis: Sequence[Expr]) -> Expr:
    """The size of an axis."""
    return sympy.expand(sympy.Mul(*axis))


def plain(axis: Axis) -> bool:
    """Whether a prefix of an axis is what counts."""
    return len(axis) == 1


def joined(factors: Sequence[Expr]) -> Axis:
    """Factors with those joined that count as one: fixed ones with what stands before them."""
    found: list[Expr] = []
    for factor in factors:
        if factor == 1:
            continue
        if found and not factor.free_symbols:
            found[-1] = sympy.expand(found[-1] * factor)
        else:
            found.append(factor)
    return tuple(found) or ONE


class Arena:
    """What padded values are made with, under one set of sizes."""

    def __init__(self, extents: Extents) -> None:
        self.extents = extents

    def fixed(self, array: Array) -> Padded:
        """An array without padding."""
        return Padded(array, tuple((sympy.Integer(size),) for size in array.shape))

    def axes(self, value: Any) -> tuple[Axis, ...]:
        """The axes of a fake tensor, all plain."""
        return tuple((self.extents.of(size),) for size in value.shape)

    def out(self, value: Any) -> Out:
        """A fake tensor's type in the bucket."""
        return Out(
            tuple(self.extents.bucket(self.extents.of(size)) for size in value.shape), dtype_of(value.dtype)
        )

    def size(self, axis: Axis) -> int:
        """How many places an axis has."""
        return self.extents.bucket(product(axis))

    def true(self, axis: Axis) -> Any:
        """How many places of an axis count: an int, or a 0-d int32 array."""
        return self.extents.true(product(axis))

    def mask(self, value: Padded, axes: Sequence[int]) -> Array:
        """Which elements count along some axes."""
        shape = value.array.shape
        flags = [
            lax.broadcast_in_dim(self.counts(value.axes[axis]), shape, (axis,))
            for axis in axes
            if value.is_padded(axis)
        ]
        return reduce(lax.bitwise_and, flags) if flags else lax.full(shape, True)

    def counts(self, axis: Axis) -> Array:
        """Which places of an axis count."""
        places = lax.iota(INT32, self.size(axis))
        found = lax.full(places.shape, True)
        for factor in reversed(axis):
            bucket = self.extents.bucket(factor)
            if factor.free_symbols:
                true = lax.broadcast(scalar(self.extents.true(factor)), places.shape)
                within = lax.lt(lax.rem(places, constant(bucket, INT32, places.shape)), true)
                found = lax.bitwise_and(found, within)
            places = lax.div(places, constant(max(bucket, 1), INT32, places.shape))
        return found

    def filled(self, value: Padded, axes: Sequence[int], fill: Any) -> Padded:
        """The value with a number where it does not count along some axes."""
        if not any(value.is_padded(axis) for axis in axes):
            return value
        array, mask = value.array, self.mask(value, axes)
        return replace(value, array=lax.select(mask, array, constant(fill, array.dtype, array.shape)))

    def plain(self, value: Padded, axes: Sequence[int] | None = None) -> Padded:
        """The value with the named axes plain, all where None; elements are moved where they were not."""
        for axis in range(value.ndim) if axes is None else axes:
            if plain(value.axes[axis]):
                continue
            kept, whole = value.axes[axis], (product(value.axes[axis]),)
            value = self.taken(value, axis, self._places(kept, whole), whole)
        return value

    def _places(self, source: Sequence[Expr], target: Sequence[Expr]) -> Array:
        """Where each place of the target's dims, counted row by row, lies in the source's."""
        shape = tuple(map(self.extents.bucket, target))
        flat = constant(0, INT32, shape)
        for at, size in enumerate(target):
            true = lax.broadcast(scalar(self.extents.true(size)), shape)
            flat = lax.add(lax.mul(flat, true), lax.broadcasted_iota(INT32, shape, at))
        places, step = constant(0, INT32, shape), 1
        for size in reversed(source):
            true = lax.broadcast(lax.max(scalar(self.extents.true(size)), scalar(1)), shape)
            own = lax.rem(flat, true)
            places = lax.add(places, lax.mul(own, constant(step, INT32, shape)))
            flat, step = lax.div(flat, true), step * self.extents.bucket(size)
        return lax.reshape(places, (int(sympy.Mul(*shape)),))

    def reshape(self, value: Padded, target: Sequence[Expr]) -> Padded:
        """The value in another shape; no element is moved where the factors of its axes allow it."""
        shape = tuple(map(self.extents.bucket, target))
        groups = None if 0 in shape else _grouped([f for axis in value.axes for f in axis], target)
        if groups is not None:
            return Padded(lax.reshape(value.array, shape), groups)
        value = self.plain(value)
        source = [factor for (factor,) in value.axes]
        if 0 in shape:
            return Padded(lax.full(shape, 0, value.array.dtype), tuple((size,) for size in target))
        flat = lax.reshape(value.array, (value.array.size,))
        array = jnp.take(flat, self._places(source, target), axis=0, mode="clip")
        return Padded(lax.reshape(array, shape), tuple((size,) for size in target))

    def aligned(self, values: Sequence[Padded], rank: int) -> tuple[list[Padded], tuple[Axis, ...]]:
        """Operands of a broadcast with equal axes, and the axes of what it gives."""
        values, axes = list(values), []
        for place in range(rank):
            own = [(number, place - rank + each.ndim) for number, each in enumerate(values)]
            own = [(number, at) for number, at in own if at >= 0 and values[number].axes[at] != ONE]
            kinds = {values[number].axes[at] for number, at in own}
            if len(kinds) > 1 and not all(map(plain, kinds)):
                for number, at in own:
                    values[number] = self.plain(values[number], (at,))
                kinds = {values[number].axes[at] for number, at in own}
            # Sizes of several plain axes are equal, however they are written: torch's guards say so.
            axes.append(min(kinds, key=lambda axis: (not padded(axis), len(str(axis)))) if kinds else ONE)
        return values, tuple(axes)

    def with_axis(self, value: Padded, axis: int, new: Axis, array: Array) -> Padded:
        """A value like another but for one axis."""
        return replace(value, array=array, axes=(*value.axes[:axis], new, *value.axes[axis + 1 :]))

    def taken(self, value: Padded, axis: int, places: Array, new: Axis | None = None) -> Padded:
        """Slices of an axis, as another axis or as its own; places beyond the bucket are clipped."""
        array = jnp.take(value.array, places, axis=axis, mode="clip")
        return self.with_axis(value, axis, value.axes[axis] if new is None else new, array)


def _grouped(factors: Sequence[Expr], target: Sequence[Expr]) -> tuple[Axis, ...] | None:
    """The factors in their order as axes of the target's sizes; None where they do not come out even."""
    left = [factor for factor in joined(factors) if factor != 1]
    groups: list[Axis] = []
    for size in target:
        group: list[Expr] = []
        rest = size
        while rest != 1:
            if not left:
                return None
            factor = left.pop(0)
            if (more := _quotient(rest, factor)) is not None:
                group.append(factor)
                rest = more
                continue
            # The last factor of an axis may be the front of a longer one, if what it leaves is fixed.
            behind = _quotient(factor, rest)
            if behind is None or behind.free_symbols:
                return None
            group.append(rest)
            left.insert(0, behind)
            rest = sympy.Integer(1)
        groups.append(joined(group))
    return None if left else tuple(groups)


def _quotient(size: Expr, divisor: Expr) -> Expr | None:
    """The size by a divisor where that comes out even for every size."""
    if size.is_Integer and divisor.is_Integer:
        return None if size % divisor else size / divisor
    found = sympy.cancel(size / divisor)
    numerator, denominator = sympy.fraction(found)
    return sympy.expand(numerator) if denominator == 1 else None


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
            isinstance(each, Size) or (isinstance(each, Padded) and any(map(padded, each.axes)))
            for each in self.leaves()
        ):
            return True
        values = self.value if isinstance(self.value, tuple | list) else [self.value]
        tensors = [each for each in values if isinstance(each, torch.Tensor)]
        return any(any(map(padded, self.arena.axes(each))) for each in tensors)

    def leaves(self) -> list[Any]:
        """The operands, those in lists too."""
        return tree_leaves((self.args, self.kwargs))

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

        `front` replaces the first operands, `changes` operands by name.
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
    args, kwargs = tree_map_only(Padded, lambda _: next(left), (call.args, call.kwargs))
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

    `place` is the operand's. `fill` gives the number that the padding of the axis is to have; what it is does
    not matter where None.
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
