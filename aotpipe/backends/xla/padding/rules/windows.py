"""Convolution and pooling: what does not count is what their own padding is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax.numpy as jnp
import torch
from jax import lax

from aotpipe.backends.xla.ops.reduction import edge
from aotpipe.backends.xla.ops.windows import Windows
from aotpipe.backends.xla.padding.layout import Padded
from aotpipe.backends.xla.padding.rules.call import Call, Lowering, array_of, require
from aotpipe.backends.xla.values import INT32, INT64, Array, cast, constant, wide

aten = torch.ops.aten


def _axes(call: Call, x: Padded, value: Any, rank: int) -> tuple[Any, ...]:
    """The axes in front stay, those of the plane are the result's."""
    return (*x.axes[: x.ndim - rank], *call.arena.axes(value)[x.ndim - rank :])


def _plane(call: Call, x: Padded, rank: int, fill: Any) -> Padded:
    """Plain axes of the plane, a number where these do not count."""
    axes = range(x.ndim - rank, x.ndim)
    x = call.arena.plain(x, axes)
    return Padded(call.arena.filled(x, axes, fill), x.axes)


def convolution(call: Call, lower: Lowering) -> Padded:
    """The plane of a call is at the front of that of the bucket, with 0 behind it."""
    rank = call.first.ndim - 2
    x = _plane(call, call.first, rank, 0)
    require(call, x.axes[1], what="a convolution over the channels")
    weight = call.args[1]
    require(call, *weight.axes, what="a convolution by a kernel")
    channels = (call.arena.axes(call.value)[1],)
    axes = (x.axes[0], *channels, *_axes(call, x, call.value, rank)[2:])
    return Padded(call.as_it_is(lower, [x, *call.args[1:]]), axes)


def max_pool(rank: int) -> Callable[[Call, Lowering], list[Padded]]:
    """Padding is the lowest number; places are those in the true plane."""

    def lowered(call: Call, lower: Lowering) -> list[Padded]:
        x = _plane(call, call.first, rank, edge(call.first.array.dtype, largest=False))
        values, places = call.as_it_is(lower, [x, *call.args[1:]])
        axes = _axes(call, x, call.value[0], rank)
        return [Padded(values, axes), Padded(_in_true_plane(call, x, places, rank), axes)]

    return lowered


def _in_true_plane(call: Call, x: Padded, places: Array, rank: int) -> Array:
    found, step = constant(0, INT64, places.shape), cast(1, INT64)
    for axis in reversed(range(x.ndim - rank, x.ndim)):
        size = constant(x.array.shape[axis], INT64, places.shape)
        found = lax.add(found, lax.mul(lax.rem(places, size), lax.broadcast(step, places.shape)))
        places = lax.div(places, size)
        step = lax.mul(step, cast(array_of(call.arena.true(x.axes[axis])), INT64))
    return found


def average_pool(rank: int) -> Callable[[Call, Lowering], Padded]:
    """Sums of what counts by the true counts of the windows."""

    def lowered(call: Call, _: Lowering) -> Padded:
        out = call.out
        x = _plane(call, Padded(cast(call.first.array, wide(out.dtype)), call.first.axes), rank, 0)
        kernel, padding = call.args[1], call.get(3, "padding", (0,))
        windows = Windows(x.array, out, kernel, call.get(2, "stride", ()), padding, (1,), rank)
        added = windows.reduce(x.array, 0, lax.add)
        divisor = call.get(6, "divisor_override")
        counts = cast(divisor or 1, INT32)
        for at in range(rank) if divisor is None else ():
            true = call.arena.true(x.axes[windows.lead + at])
            own = _counts(windows, at, array_of(true), padded=call.get(5, "count_include_pad", True))
            counts = counts * own.reshape([-1 if axis == at else 1 for axis in range(rank)])
        found = lax.div(added, jnp.broadcast_to(cast(counts, added.dtype), added.shape))
        return Padded(found, _axes(call, x, call.value, rank))

    return lowered


def _counts(windows: Windows, at: int, size: Array, *, padded: bool) -> Array:
    """How many elements each window of a dim counts."""
    pad = windows.padding[at]
    starts = lax.iota(INT32, windows.out[at]) * windows.stride[at] - pad
    ends = jnp.minimum(starts + windows.kernel[at], size + pad)
    if not padded:
        starts, ends = jnp.maximum(starts, 0), jnp.minimum(ends, size)
    return ends - starts


def adaptive_average_pool(rank: int) -> Callable[[Call, Lowering], Padded]:
    """Windows that share out the true size, as many as asked for."""

    def lowered(call: Call, _: Lowering) -> Padded:
        x = _plane(call, Padded(cast(call.first.array, wide(call.out.dtype)), call.first.axes), rank, 0)
        for axis in range(x.ndim - rank, x.ndim):
            own = call.arena.axes(call.value)[axis]
            require(call, own, what="windows for each place")
            x = call.arena.with_axis(x, axis, own, _shared(call, x, axis, call.out.shape[axis]))
        return x

    return lowered


def _shared(call: Call, x: Padded, axis: int, wanted: int) -> Array:
    """The means of windows along an axis."""
    size = array_of(call.arena.true(x.axes[axis]))
    numbers = lax.iota(INT32, wanted)
    first, last = numbers * size // wanted, -((-(numbers + 1) * size) // wanted)
    places = lax.iota(INT32, x.array.shape[axis])
    within = (places >= first[:, None]) & (places < last[:, None])
    parts = []
    for number in range(wanted):
        flags = lax.broadcast_in_dim(within[number], x.array.shape, (axis,))
        kept = lax.select(flags, x.array, constant(0, x.array.dtype, x.array.shape))
        added = lax.reduce(kept, constant(0, x.array.dtype), lax.add, (axis,))
        counts = cast(last[number] - first[number], x.array.dtype)
        parts.append(lax.expand_dims(lax.div(added, jnp.broadcast_to(counts, added.shape)), (axis,)))
    return lax.concatenate(parts, axis)


RULES: Final[dict[Any, Any]] = {
    aten.convolution.default: convolution,
    aten.max_pool2d_with_indices.default: max_pool(2),
    aten.max_pool3d_with_indices.default: max_pool(3),
    aten.avg_pool1d.default: average_pool(1),
    aten.avg_pool2d.default: average_pool(2),
    aten.avg_pool3d.default: average_pool(3),
    aten._adaptive_avg_pool2d.default: adaptive_average_pool(2),
    aten._adaptive_avg_pool3d.default: adaptive_average_pool(3),
}
