"""Ops that move elements: by the true sizes, where these say how far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax.numpy as jnp
import sympy
import torch
from jax import lax

from aotpipe.backends.xla.padding.layout import ONE, Axis, Padded, joined, padded
from aotpipe.backends.xla.padding.rules.call import (
    Call,
    Lowering,
    array_of,
    bucket_number,
    require,
    result,
    true_number,
)
from aotpipe.backends.xla.padding.sizes import Size
from aotpipe.backends.xla.values import INT32, Array, axis_of, broadcast, cast, constant, is_array

aten = torch.ops.aten


def _target(call: Call) -> list[Any]:
    return [factor for (factor,) in call.arena.axes(call.value)]


def reshape(call: Call, _: Lowering) -> Padded:
    """Another shape."""
    return call.arena.reshape(call.first, _target(call))


def permute(call: Call, lower: Lowering) -> Padded:
    """Dims in another order."""
    axes = [dim % call.first.ndim for dim in call.args[1]]
    return Padded(call.as_it_is(lower), tuple(call.first.axes[axis] for axis in axes))


def transpose(call: Call, lower: Lowering) -> Padded:
    """Two dims exchanged."""
    axes = list(call.first.axes)
    if axes:
        first, second = (dim % len(axes) for dim in call.args[1:3])
        axes[first], axes[second] = axes[second], axes[first]
    return Padded(call.as_it_is(lower), tuple(axes))


def matrix_transpose(call: Call, lower: Lowering) -> Padded:
    """A matrix's two dims exchanged."""
    return Padded(call.as_it_is(lower), call.first.axes[::-1])


def expand(call: Call, lower: Lowering) -> Padded:
    """Broadcast: an axis that was there stays what it is."""
    axes = list(call.arena.axes(call.value))
    for at, axis in enumerate(reversed(call.first.axes)):
        if axis != ONE:
            axes[len(axes) - 1 - at] = axis
    return result(call, broadcast(call.first.array, call.out.shape), axes)


def _same_elsewhere(call: Call, axis: int, lower: Lowering, args: Sequence[Any]) -> Any:
    """An op of one axis, which gets the axes of its fake values there; the others stay."""
    found = call.as_it_is(lower, args)
    many = isinstance(call.value, tuple | list)
    values = call.value if many else [call.value]
    arrays = found if many else [found]
    x = args[0]
    results = [
        call.arena.with_axis(x, axis, call.arena.axes(value)[axis], array)
        for value, array in zip(values, arrays, strict=True)
    ]
    return results if many else results[0]


def taken(call: Call, x: Padded, axis: int, places: Array) -> Padded:
    """Slices of an axis, as the result's axis; places beyond the bucket are clipped."""
    array = jnp.take(x.array, places, axis=axis, mode="clip")
    return call.arena.with_axis(x, axis, call.arena.axes(call.value)[axis], array)


def places_of(size: int) -> Array:
    """0, 1, ... along an axis."""
    return lax.iota(INT32, size)


def _counted(number: Any, size: Any) -> Any:
    """A place counted from the front; by the true size where it is negative."""
    number, size = true_number(number), true_number(size)
    if is_array(number):
        return jnp.where(number < 0, number + size, number)
    return number + size if number < 0 else number


def cat(call: Call, _: Lowering) -> Padded:
    """Joined along a dim: each where the one before truly ends."""
    arena, out = call.arena, call.out
    kept = [x for x in call.args[0] if x.ndim != 1 or x.array.shape[0]] or [call.args[0][0]]
    axis = axis_of(call.get(1, "dim", 0), kept[0].ndim)
    kept = [arena.plain(x, (axis,)) for x in kept]
    kept = _agreeing(call, kept, axis)
    axes = (*kept[0].axes[:axis], arena.axes(call.value)[axis], *kept[0].axes[axis + 1 :])
    arrays = [cast(x.array, out.dtype) for x in kept]
    array = lax.concatenate(arrays, axis)
    if any(padded(x.axes[axis]) for x in kept[:-1]):
        # Each overwrites the padding before it, with room for all: an update is moved where it does not fit.
        array, start = constant(0, out.dtype, array.shape), cast(0, INT32)
        for x, part in zip(kept, arrays, strict=True):
            starts = [start if at == axis else cast(0, INT32) for at in range(x.ndim)]
            array = lax.dynamic_update_slice(array, part, starts)
            start = lax.add(start, array_of(arena.true(x.axes[axis])))
    return Padded(lax.slice_in_dim(array, 0, out.shape[axis], axis=axis), axes)


def _agreeing(call: Call, values: Sequence[Padded], axis: int) -> list[Padded]:
    """Values whose axes are equal but for one."""
    found = list(values)
    for at in range(found[0].ndim):
        if at != axis and len({x.axes[at] for x in found}) > 1:
            found = [call.arena.plain(x, (at,)) for x in found]
    return found


def stack(call: Call, lower: Lowering) -> Padded:
    """Joined along a new dim."""
    found = _agreeing(call, call.args[0], -1)
    axis = call.get(1, "dim", 0) % (found[0].ndim + 1)
    axes = (*found[0].axes[:axis], (sympy.Integer(len(found)),), *found[0].axes[axis:])
    return Padded(call.as_it_is(lower, [found, *call.args[1:]]), axes)


def split(call: Call, lower: Lowering) -> Any:
    """Parts: of an axis that is padded each where it truly starts."""
    x, arena = call.first, call.arena
    axis = axis_of(call.get(2, "dim", 0), x.ndim)
    x = arena.plain(x, (axis,))
    if not padded(x.axes[axis]):
        return _same_elsewhere(call, axis, lower, [x, *call.args[1:]])
    start: Any = cast(0, INT32)
    parts = []
    for value in call.value:
        own = arena.axes(value)[axis]
        places = lax.add(places_of(arena.size(own)), lax.broadcast(start, (arena.size(own),)))
        array = jnp.take(x.array, places, axis=axis, mode="clip")
        parts.append(arena.with_axis(x, axis, own, array))
        start = lax.add(start, array_of(arena.true(own)))
    return parts


def unbind(call: Call, lower: Lowering) -> list[Padded]:
    """Each slice of a dim, which is not padded: how many there are is fixed."""
    axis = axis_of(call.get(1, "dim", 0), call.first.ndim)
    x = call.arena.plain(call.first, (axis,))
    require(call, x.axes[axis], what="the slices")
    return [_without(each, x, axis) for each in call.as_it_is(lower, [x, *call.args[1:]])]


def _without(array: Array, x: Padded, axis: int) -> Padded:
    return Padded(array, (*x.axes[:axis], *x.axes[axis + 1 :]))


def select(call: Call, lower: Lowering) -> Padded:
    """One slice of a dim; from the true end where its index is negative."""
    axis = axis_of(call.args[1], call.first.ndim)
    x = call.arena.plain(call.first, (axis,))
    place = _counted(call.args[2], call.arena.true(x.axes[axis]))
    if isinstance(place, int):
        return _without(call.as_it_is(lower, [x, axis, place]), x, axis)
    return _without(lax.dynamic_index_in_dim(x.array, place, axis, keepdims=False), x, axis)


def _bounds(start: Any, end: Any, size: Any) -> tuple[Any, Any]:
    """A slice's true bounds, clamped as torch does it: ints, or 0-d arrays."""
    found: list[Any] = []
    for place, default in ((start, 0), (end, size)):
        counted = _counted(default if place is None else place, size)
        numbers = not is_array(counted) and not is_array(size)
        found.append(min(max(counted, 0), size) if numbers else jnp.clip(counted, 0, size))
    return found[0], found[1]


def slice_(call: Call, _: Lowering) -> Padded:
    """A slice of one dim, by its true start."""
    axis = axis_of(call.get(1, "dim", 0), call.first.ndim)
    x = call.arena.plain(call.first, (axis,))
    step = call.get(4, "step", 1)
    start, end = _bounds(call.get(2, "start"), call.get(3, "end"), call.arena.true(x.axes[axis]))
    true = (array_of(end) - array_of(start) + (step - 1)) // step
    call.arena.extents.learn(call.value.shape[axis], true)
    size = call.out.shape[axis]
    last = start + (size - 1) * step + 1 if isinstance(start, int) else None
    if last is not None and size and last <= x.array.shape[axis]:
        array = lax.slice_in_dim(x.array, start, last, step, axis)
        return call.arena.with_axis(x, axis, call.arena.axes(call.value)[axis], array)
    return taken(call, x, axis, array_of(start) + places_of(size) * step)


def slice_scatter(call: Call, _: Lowering) -> Padded:
    """The tensor with a slice replaced."""
    x, source = (call.arena.plain(each) for each in call.args[:2])
    axis = axis_of(call.get(2, "dim", 0), x.ndim)
    start, end = _bounds(call.get(3, "start"), call.get(4, "end"), call.arena.true(x.axes[axis]))
    step = call.get(5, "step", 1)
    from_start = places_of(x.array.shape[axis]) - array_of(start)
    within = (from_start >= 0) & (from_start < array_of(end) - array_of(start)) & (from_start % step == 0)
    shape = [
        own if at == axis else size
        for at, (size, own) in enumerate(zip(x.array.shape, source.array.shape, strict=True))
    ]
    spread = broadcast(cast(source.array, x.array.dtype), shape)
    if not spread.shape[axis]:
        return x
    moved = jnp.take(spread, from_start // step, axis=axis, mode="clip")
    flags = lax.broadcast_in_dim(within, x.array.shape, (axis,))
    return Padded(lax.select(flags, moved, x.array), x.axes)


def select_scatter(call: Call, lower: Lowering) -> Padded:
    """The tensor with one slice of a dim replaced."""
    x, source = (call.arena.plain(each) for each in call.args[:2])
    axis = axis_of(call.args[2], x.ndim)
    place = _counted(call.args[3], call.arena.true(x.axes[axis]))
    return Padded(call.as_it_is(lower, [x, source, axis, place]), x.axes)


def diagonal(call: Call, lower: Lowering) -> Padded:
    """A diagonal of a matrix that is larger than it need be begins with that of the smaller."""
    return Padded(
        call.as_it_is(lower, [call.arena.plain(call.first), *call.args[1:]]), call.arena.axes(call.value)
    )


def flip(call: Call, lower: Lowering) -> Padded:
    """Backwards along dims: what counts only."""
    x = call.first
    fixed = []
    for axis in sorted({dim % x.ndim for dim in call.args[1]}) if x.ndim else ():
        if not x.is_padded(axis):
            fixed.append(axis)
            continue
        x = call.arena.plain(x, (axis,))
        places = array_of(call.arena.true(x.axes[axis])) - 1 - places_of(x.array.shape[axis])
        x = Padded(jnp.take(x.array, places, axis=axis, mode="clip"), x.axes)
    return Padded(call.as_it_is(lower, [x, fixed]), x.axes)


def roll(call: Call, lower: Lowering) -> Padded:
    """Round what counts of a dim."""
    shifts, dims = (
        each if isinstance(each, list | tuple) else [each] for each in (call.args[1], call.get(2, "dims", ()))
    )
    if not dims:
        flat = call.arena.reshape(call.first, [call.first.size])
        return call.arena.reshape(_rolled(call, flat, 0, shifts[0]), _target(call))
    x = call.first
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(call, x, dim % x.ndim, shift)
    return x


def _rolled(call: Call, x: Padded, axis: int, shift: Any) -> Padded:
    x = call.arena.plain(x, (axis,))
    size = jnp.maximum(array_of(call.arena.true(x.axes[axis])), 1)
    places = (places_of(x.array.shape[axis]) - array_of(shift)) % size
    return Padded(jnp.take(x.array, places, axis=axis, mode="clip"), x.axes)


def repeat(call: Call, lower: Lowering) -> Padded:
    """Copies beside each other: one more factor of each axis."""
    new = len(call.args[1]) - call.first.ndim
    axes: list[Axis] = []
    for at, times in enumerate(call.args[1]):
        own = call.first.axes[at - new] if at >= new else ONE
        axes.append(joined((times.expr if isinstance(times, Size) else sympy.Integer(times), *own)))
    return Padded(
        call.as_it_is(lower, [call.first, [bucket_number(each) for each in call.args[1]]]), tuple(axes)
    )


def view_dtype(call: Call, lower: Lowering) -> Padded:
    """The same bits as another dtype: the last dim may shrink or grow, and is not padded then."""
    x = call.arena.plain(call.first)
    if call.value.element_size() != x.array.dtype.itemsize:
        require(call, x.axes[-1], what="the bits")
    return Padded(call.as_it_is(lower, [x, *call.args[1:]]), call.arena.axes(call.value))


def of_pairs(call: Call, lower: Lowering) -> Padded:
    """Complex numbers to pairs and back."""
    x = call.first
    two = ((sympy.Integer(2),),)
    axes = x.axes[:-1] if call.value.is_complex() else x.axes + two
    return Padded(call.as_it_is(lower), axes)


def plain_all(call: Call, lower: Lowering) -> Padded:
    """Ops that look at an element's place, counted from the front."""
    return Padded(
        call.as_it_is(lower, [call.arena.plain(call.first), *call.args[1:]]), call.arena.axes(call.value)
    )


RULES: Final[dict[Any, Any]] = {
    **dict.fromkeys(
        (
            aten.view.default,
            aten._unsafe_view.default,
            aten.reshape.default,
            aten.squeeze.default,
            aten.squeeze.dim,
            aten.squeeze.dims,
            aten.unsqueeze.default,
            aten._reshape_copy.default,
        ),
        reshape,
    ),
    aten.expand.default: expand,
    aten.permute.default: permute,
    aten.transpose.int: transpose,
    aten.t.default: matrix_transpose,
    aten.cat.default: cat,
    aten.stack.default: stack,
    aten.split_with_sizes.default: split,
    aten.split.Tensor: split,
    aten.unbind.int: unbind,
    aten.select.int: select,
    aten.slice.Tensor: slice_,
    aten.slice_scatter.default: slice_scatter,
    aten.select_scatter.default: select_scatter,
    aten.diagonal.default: diagonal,
    aten.flip.default: flip,
    aten.roll.default: roll,
    aten.repeat.default: repeat,
    aten.view.dtype: view_dtype,
    aten.view_as_real.default: of_pairs,
    aten.view_as_complex.default: of_pairs,
    aten.tril.default: plain_all,
    aten.triu.default: plain_all,
    aten.unfold.default: plain_all,
}
