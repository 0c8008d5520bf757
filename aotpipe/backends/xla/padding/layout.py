"""Values whose axes may be padded: where what counts lies, masks of it, and other shapes of it.

An axis is a product of factors, the slowest first. Of each factor the first `true` of its places count, so
that `[batch, heads, seq]` seen as `[batch, heads * seq]` needs no element moved: the factors are `heads` and
`seq`. An axis of one factor is plain: a prefix of it counts. `Arena` makes masks and moves elements where an
op needs plain axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import jax.numpy as jnp
import sympy
from jax import lax

from aotpipe.backends.xla.padding.sizes import Expr, Extents, scalar
from aotpipe.backends.xla.values import INT32, Array, Out, constant, dtype_of

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

    @property
    def padded_axes(self) -> tuple[int, ...]:
        """The axes that hold places that do not count."""
        return tuple(axis for axis in range(self.ndim) if self.is_padded(axis))


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
        found = None
        for axis in axes:
            if not value.is_padded(axis):
                continue
            counts = lax.broadcast_in_dim(self.counts(value.axes[axis]), shape, (axis,))
            found = counts if found is None else lax.bitwise_and(found, counts)
        return lax.full(shape, True) if found is None else found

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
            kept = value.axes[axis]
            places = self._places(kept, (product(kept),))
            array = jnp.take(value.array, places, axis=axis, mode="clip")
            value = Padded(array, (*value.axes[:axis], (product(kept),), *value.axes[axis + 1 :]))
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
