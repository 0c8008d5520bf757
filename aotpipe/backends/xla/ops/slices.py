"""Concatenation, splits, slices, flips, rolls and padding; in a bucket they go by the true sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
import sympy
import torch
from jax import lax

from aotpipe.backends.xla.ops.shape import padded_reshape
from aotpipe.backends.xla.padding.rules import Call, Padded, array_of, bare, require, true_number
from aotpipe.backends.xla.values import INT32, INT64, Array, Out, Scalar, axis_of, cast, constant, is_array
from aotpipe.passes.ops import overloads

aten = torch.ops.aten
_MOST: Final = 2**31 - 1


def _along(call: Call, place: int, default: int = 0) -> tuple[Padded, int]:
    """The first operand, and its axis that another operand names, which is plain."""
    axis = axis_of(call.get(place, "dim", default), call.first.ndim)
    return call.arena.plain(call.first, (axis,)), axis


def _without(array: Array, x: Padded, axis: int) -> Padded:
    return Padded(array, (*x.axes[:axis], *x.axes[axis + 1 :]))


def cat(out: Out, tensors: Sequence[Array], dim: int = 0) -> Array:
    """Concatenate along a dim; empty vectors are left out, whatever the rank of the others."""
    kept = [x for x in tensors if x.ndim != 1 or x.shape[0]] or [tensors[0]]
    return lax.concatenate([cast(x, out.dtype) for x in kept], axis_of(dim, kept[0].ndim))


def _padded_cat(call: Call) -> Padded:
    """Each part starts where the true part of the one before it ends."""
    arena, out = call.arena, call.out
    kept = [x for x in call.args[0] if x.ndim != 1 or x.array.shape[0]] or [call.args[0][0]]
    axis = axis_of(call.get(1, "dim", 0), kept[0].ndim)
    kept = _agreeing(call, [arena.plain(x, (axis,)) for x in kept], axis)
    arrays = [cast(x.array, out.dtype) for x in kept]
    array = lax.concatenate(arrays, axis)
    if any(x.is_padded(axis) for x in kept[:-1]):
        # Each overwrites the padding before it, with room for all: an update is moved where it does not fit.
        array, start = constant(0, out.dtype, array.shape), cast(0, INT32)
        for x, part in zip(kept, arrays, strict=True):
            array = lax.dynamic_update_slice_in_dim(array, part, start, axis)
            start = start + call.true(x, axis)
    array = lax.slice_in_dim(array, 0, out.shape[axis], axis=axis)
    return arena.with_axis(kept[0], axis, call.axes[axis], array)


def _agreeing(call: Call, values: Sequence[Padded], axis: int) -> list[Padded]:
    """Values whose axes are equal but for one."""
    found = list(values)
    for at in range(found[0].ndim):
        if at != axis and len({x.axes[at] for x in found}) > 1:
            found = [call.arena.plain(x, (at,)) for x in found]
    return found


def _padded_stack(call: Call) -> Padded:
    found = _agreeing(call, call.args[0], -1)
    axis = call.get(1, "dim", 0) % (found[0].ndim + 1)
    axes = (*found[0].axes[:axis], (sympy.Integer(len(found)),), *found[0].axes[axis:])
    return Padded(call.as_it_is(found), axes)


def split(_: Any, x: Array, size: int, dim: int = 0) -> list[Array]:
    """Parts of one size, the last may be smaller."""
    axis = axis_of(dim, x.ndim)
    return jnp.split(x, list(range(size, x.shape[axis], size)) if size else [], axis)


def _padded_split(call: Call) -> Any:
    """Each part of a padded axis starts at its true offset."""
    x, axis = _along(call, 2)
    arena, axes = call.arena, [call.arena.axes(value)[axis] for value in call.value]
    if not x.is_padded(axis):
        parts = call.as_it_is(x)
        return [arena.with_axis(x, axis, own, part) for own, part in zip(axes, parts, strict=True)]
    found, start = [], cast(0, INT32)
    for own in axes:
        found.append(arena.taken(x, axis, lax.iota(INT32, arena.size(own)) + start, own))
        start = start + array_of(arena.true(own))
    return found


def _padded_unbind(call: Call) -> list[Padded]:
    """The number of slices is fixed, so that their dim must not be padded."""
    x, axis = _along(call, 1)
    require(x.axes[axis : axis + 1], "the slices")
    return [_without(each, x, axis) for each in call.as_it_is(x)]


def select(out: Out, x: Array, dim: int, index: Any) -> Array:
    """One slice of a dim; an index that the run computes is within bounds."""
    axis = axis_of(dim, x.ndim)
    if isinstance(index, int):
        return lax.index_in_dim(x, index, axis, keepdims=False)
    place = jnp.where(index < 0, index + x.shape[axis], index)
    return lax.dynamic_index_in_dim(x, place, axis, keepdims=False)


def _from_front(number: Any, size: Any) -> Any:
    """A place counted from the front; from the true end where it is negative."""
    number, size = true_number(number), true_number(size)
    if is_array(number):
        return jnp.where(number < 0, number + size, number)
    return number + size if number < 0 else number


def _padded_select(call: Call) -> Padded:
    x, axis = _along(call, 1)
    place = _from_front(call.args[2], call.arena.true(x.axes[axis]))
    return _without(call.as_it_is(x, axis, place), x, axis)


def _bounds(start: Any, end: Any, size: Any) -> tuple[Any, Any]:
    """A slice's true bounds, clamped as torch does it: ints, or 0-d arrays."""
    found: list[Any] = []
    for place, default in ((start, 0), (end, size)):
        place = default if place is None else place
        if isinstance(place, int):
            # torch's "to the end", 2**63 - 1, would wrap around in the int32 of a size.
            place = min(max(place, -_MOST), _MOST)
        counted = _from_front(place, size)
        numbers = not is_array(counted) and not is_array(size)
        found.append(min(max(counted, 0), size) if numbers else jnp.clip(counted, 0, size))
    return found[0], found[1]


def slice_(out: Out, x: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Array:
    """A slice of one dim; its size is known, its start may be computed."""
    axis = axis_of(dim, x.ndim)
    if not is_array(start) and not is_array(end):
        first, last = _bounds(start, end, x.shape[axis])
        return lax.slice_in_dim(x, first, max(first, last), step, axis)
    start = _bounds(start, None, x.shape[axis])[0]
    return jnp.take(x, start + step * lax.iota(INT64, out.shape[axis]), axis=axis, mode="clip")


def _padded_slice(call: Call) -> Padded:
    x, axis = _along(call, 1)
    step = call.get(4, "step", 1)
    start, end = _bounds(call.get(2, "start"), call.get(3, "end"), call.arena.true(x.axes[axis]))
    true = (array_of(end) - array_of(start) + (step - 1)) // step
    call.arena.extents.learn(call.value.shape[axis], true)
    size = call.out.shape[axis]
    last = start + (size - 1) * step + 1 if isinstance(start, int) else None
    if last is not None and size and last <= x.array.shape[axis]:
        array = lax.slice_in_dim(x.array, start, last, step, axis)
        return call.arena.with_axis(x, axis, call.axes[axis], array)
    return call.arena.taken(x, axis, array_of(start) + lax.iota(INT32, size) * step, call.axes[axis])


def slice_scatter(
    _: Out,
    x: Array,
    source: Array,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Array:
    """The tensor with a slice replaced."""
    place = (slice(None),) * axis_of(dim, x.ndim) + (slice(start, end, step),)
    return x.at[place].set(cast(source, x.dtype))


def _padded_slice_scatter(call: Call) -> Padded:
    x, source = (call.arena.plain(each) for each in call.args[:2])
    axis = axis_of(call.get(2, "dim", 0), x.ndim)
    start, end = _bounds(call.get(3, "start"), call.get(4, "end"), call.arena.true(x.axes[axis]))
    step, shape, own = call.get(5, "step", 1), x.array.shape, source.array.shape[axis]
    from_start = lax.iota(INT32, shape[axis]) - array_of(start)
    within = (from_start >= 0) & (from_start < array_of(end) - array_of(start)) & (from_start % step == 0)
    if not own:
        return x
    spread = jnp.broadcast_to(cast(source.array, x.array.dtype), (*shape[:axis], own, *shape[axis + 1 :]))
    moved = jnp.take(spread, from_start // step, axis=axis, mode="clip")
    return Padded(lax.select(lax.broadcast_in_dim(within, shape, (axis,)), moved, x.array), x.axes)


def select_scatter(_: Out, x: Array, source: Array, dim: int, index: int) -> Array:
    """The tensor with one slice of a dim replaced."""
    axis = axis_of(dim, x.ndim)
    return x.at[(slice(None),) * axis + (index,)].set(cast(source, x.dtype))


def _padded_select_scatter(call: Call) -> Padded:
    x, source = (call.arena.plain(each) for each in call.args[:2])
    axis = axis_of(call.args[2], x.ndim)
    place = _from_front(call.args[3], call.arena.true(x.axes[axis]))
    return Padded(call.as_it_is(x, source, axis, place), x.axes)


def _padded_flip(call: Call) -> Padded:
    """Flip the true part of each dim; the padding stays behind it."""
    x, fixed = call.first, []
    for axis in sorted({dim % x.ndim for dim in call.args[1]}) if x.ndim else ():
        if not x.is_padded(axis):
            fixed.append(axis)
            continue
        x = call.arena.plain(x, (axis,))
        places = call.true(x, axis) - 1 - lax.iota(INT32, x.array.shape[axis])
        x = call.arena.taken(x, axis, places)
    return Padded(call.as_it_is(x, fixed), x.axes)


def roll(_: Out, x: Array, shifts: Any, dims: Any = ()) -> Array:
    """Roll each dim by itself: a shift may be a number that a loop counts, of which jax takes no list."""
    shifts, dims = (each if isinstance(each, list | tuple) else [each] for each in (shifts, dims))
    if not dims:
        return jnp.roll(x, shifts[0])
    for shift, dim in zip(shifts, dims, strict=True):
        x = jnp.roll(x, shift, dim)
    return x


def _padded_roll(call: Call) -> Padded:
    """Roll within the true size of each dim."""
    shifts, dims = (
        each if isinstance(each, list | tuple) else [each] for each in (call.args[1], call.get(2, "dims", ()))
    )
    if not dims:
        flat = call.arena.reshape(call.first, [call.first.size])
        return padded_reshape(call, _rolled(call, flat, 0, shifts[0]))
    x = call.first
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(call, x, dim % x.ndim, shift)
    return x


def _rolled(call: Call, x: Padded, axis: int, shift: Any) -> Padded:
    x = call.arena.plain(x, (axis,))
    places = (lax.iota(INT32, x.array.shape[axis]) - array_of(shift)) % jnp.maximum(call.true(x, axis), 1)
    return call.arena.taken(x, axis, places)


def _sides(x: Array | Padded, pad: Sequence[Any]) -> list[tuple[int, Any, Any]]:
    """Each axis that is padded, with what is added before and after it; the last dim's pair comes first."""
    return [(x.ndim - 1 - place, *pad[2 * place : 2 * place + 2]) for place in range(len(pad) // 2)]


def constant_pad(_: Out, x: Array, pad: Sequence[int], value: Scalar = 0) -> Array:
    """Pad each side of a dim, or cut it where negative."""
    pairs = [(0, 0, 0)] * x.ndim
    for axis, before, after in _sides(x, pad):
        pairs[axis] = (int(before), int(after), 0)
    return lax.pad(x, cast(value, x.dtype), pairs)


def _padded_constant_pad(call: Call) -> Padded:
    """The constants follow the true part of a dim, not its padding."""
    x = call.first
    value = cast(bare(call.get(2, "value", 0)), x.array.dtype)
    for axis, before, after in _sides(x, call.args[1]):
        if not x.is_padded(axis) and isinstance(before, int) and isinstance(after, int):
            pairs = [(0, 0, 0)] * x.ndim
            pairs[axis] = (before, after, 0)
            array = lax.pad(x.array, value, pairs)
            x = call.arena.with_axis(x, axis, (sympy.Integer(array.shape[axis]),), array)
            continue
        x = call.arena.plain(x, (axis,))
        places = lax.iota(INT32, call.out.shape[axis]) - array_of(before)
        flags = (places >= 0) & (places < call.true(x, axis))
        if x.array.shape[axis]:
            array = jnp.take(x.array, places, axis=axis, mode="clip")
        else:
            array = lax.full((*x.array.shape[:axis], places.size, *x.array.shape[axis + 1 :]), 0, value.dtype)
        flags = lax.broadcast_in_dim(flags, array.shape, (axis,))
        array = lax.select(flags, array, lax.broadcast(value, array.shape))
        x = call.arena.with_axis(x, axis, call.axes[axis], array)
    return x


def _edge_pad(mode: str) -> tuple[Callable[..., Array], Callable[[Call], Padded]]:
    """The elements at the edges, or a mirror of what lies there."""

    def places(size: int, before: Any, last: Any) -> Any:
        of = jnp if is_array(last) else np
        steps = np.arange(size, dtype=np.int32) - before
        if mode == "reflect":
            steps = last - abs(last - abs(steps))
        return of.clip(steps, 0, of.maximum(last, 0))

    def lower(out: Out, x: Array, pad: Sequence[int]) -> Array:
        for axis, before, _ in _sides(x, pad):
            x = jnp.take(x, places(out.shape[axis], before, x.shape[axis] - 1), axis=axis)
        return x

    def rule(call: Call) -> Padded:
        x = call.first
        for axis, before, _ in _sides(x, call.args[1]):
            x = call.arena.plain(x, (axis,))
            taken = places(call.out.shape[axis], array_of(before), call.true(x, axis) - 1)
            x = call.arena.taken(x, axis, taken, call.axes[axis])
        return x

    return lower, rule


OPS: Final[dict[Any, Any]] = {
    aten.cat.default: (cat, _padded_cat),
    aten.stack.default: (
        lambda out, tensors, dim=0: jnp.stack([cast(x, out.dtype) for x in tensors], dim),
        _padded_stack,
    ),
    aten.split_with_sizes.default: (
        lambda _, x, sizes, dim=0: lax.split(x, sizes, axis_of(dim, x.ndim)),
        _padded_split,
    ),
    aten.split.Tensor: (split, _padded_split),
    aten.unbind.int: (lambda _, x, dim=0: jnp.unstack(x, axis=dim), _padded_unbind),
    aten.select.int: (select, _padded_select),
    aten.slice.Tensor: (slice_, _padded_slice),
    aten.slice_scatter.default: (slice_scatter, _padded_slice_scatter),
    aten.select_scatter.default: (select_scatter, _padded_select_scatter),
    aten.flip.default: (
        lambda _, x, dims: lax.rev(x, sorted({dim % x.ndim for dim in dims})) if x.ndim else x,
        _padded_flip,
    ),
    aten.roll.default: (roll, _padded_roll),
    aten.constant_pad_nd.default: (constant_pad, _padded_constant_pad),
    overloads("reflection_pad1d reflection_pad2d reflection_pad3d"): _edge_pad("reflect"),
    overloads("replication_pad1d replication_pad2d replication_pad3d"): _edge_pad("edge"),
}
