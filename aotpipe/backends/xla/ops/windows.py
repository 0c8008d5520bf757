"""Convolution and pooling. In a bucket, the padding of a dim holds what the op itself pads with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from aotpipe.backends.xla.ops.blas import PRECISION
from aotpipe.backends.xla.ops.pointwise import like
from aotpipe.backends.xla.ops.reduction import edge
from aotpipe.backends.xla.padding.rules import Call, Padded, Rule, require
from aotpipe.backends.xla.values import INT32, INT64, Array, Out, cast, constant, is_array, is_float, wide

aten = torch.ops.aten
Sizes = Sequence[int]


def _each(sizes: int | Sizes, rank: int) -> list[int]:
    listed = [sizes] if isinstance(sizes, int) else list(sizes)
    return listed * rank if len(listed) == 1 else listed


def convolution(
    out: Out,
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Array:
    """Of any rank, with groups; transposed as the convolution of the spread input with the turned weight."""
    rank = x.ndim - 2
    stride, padding, dilation = (_each(sizes, rank) for sizes in (stride, padding, dilation))
    x, weight = cast(x, out.dtype), cast(weight, out.dtype)
    work = wide(out.dtype)
    spread = [1] * rank
    pads = [(pad, pad) for pad in padding]
    if transposed:
        kernel = weight.shape[2:]
        weight = _turned(weight, groups)
        spread, stride = stride, spread
        reach = [step * (size - 1) for step, size in zip(dilation, kernel, strict=True)]
        more = _each(output_padding, rank)
        pads = [(far - pad, far - pad + add) for far, pad, add in zip(reach, padding, more, strict=True)]
    if not out.shape or 0 in out.shape or 0 in x.shape:
        result = constant(0, work, out.shape)
    else:
        result = lax.conv_general_dilated(
            x,
            weight,
            stride,
            pads,
            spread,
            dilation,
            lax.ConvDimensionNumbers(*(tuple(range(rank + 2)),) * 3),
            groups,
            precision=PRECISION,
            preferred_element_type=work,
        )
    if bias is None:
        return result
    return lax.add(result, lax.broadcast_in_dim(cast(bias, work), out.shape, (1,)))


def convolution_backward(
    out: Sequence[Out],
    gradient: Array,
    x: Array,
    weight: Array,
    _bias_sizes: Sizes | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
    output_mask: Sequence[bool],
) -> list[Array | None]:
    """The gradients of the input, the weight and the bias, as jax derives those of a convolution."""
    work = wide(gradient.dtype)
    gradient, x, weight = (cast(each, work) for each in (gradient, x, weight))

    def forward(x: Array, weight: Array) -> Array:
        made, options = Out(gradient.shape, work), (transposed, output_padding, groups)
        return convolution(made, x, weight, None, stride, padding, dilation, *options)

    _, pull = jax.vjp(forward, x, weight)
    bias = lax.reduce_sum(gradient, (0, *range(2, gradient.ndim)))
    return [
        each if is_asked else None
        for each, is_asked in zip((*pull(gradient), bias), output_mask, strict=True)
    ]


def _turned(weight: Array, groups: int) -> Array:
    inputs, outputs, *kernel = weight.shape
    weight = lax.reshape(weight, (groups, inputs // groups, outputs, *kernel))
    weight = lax.reshape(jnp.swapaxes(weight, 1, 2), (groups * outputs, inputs // groups, *kernel))
    return lax.rev(weight, tuple(range(2, weight.ndim)))


def _axes(x: Padded, own: Sequence[Any], rank: int) -> tuple[Any, ...]:
    """The axes in front stay, those of the plane are the result's."""
    return (*x.axes[: x.ndim - rank], *own[x.ndim - rank :])


def _plane(call: Call, rank: int, fill: Any) -> Padded:
    """The first operand with plain axes of the plane, and a number where these do not count."""
    axes = range(call.first.ndim - rank, call.first.ndim)
    return call.arena.filled(call.arena.plain(call.first, axes), axes, fill)


def _padded_convolution(call: Call) -> Padded:
    """The plane of a call is at the front of that of the bucket, with 0 behind it."""
    rank, own = call.first.ndim - 2, call.axes
    x = _plane(call, rank, 0)
    require(x.axes[1:2], "a convolution over the channels")
    require(call.args[1].axes, "a convolution by a kernel")
    return Padded(call.as_it_is(x), (x.axes[0], *own[1:]))


class Windows:
    """The windows of a pooling over the last dims of a tensor.

    Attributes:
        pads: Below and above each dim; above so much that every window is whole.
    """

    def __init__(
        self, x: Array, out: Out, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, rank: int
    ) -> None:
        self.lead = x.ndim - rank
        self.kernel, self.dilation = _each(kernel, rank), _each(dilation, rank)
        self.stride = _each(stride, rank) if stride else self.kernel
        self.padding = _each(padding, rank)
        self.sizes, self.out = x.shape[self.lead :], out.shape[self.lead :]
        self.pads = []
        for at, size in enumerate(self.sizes):
            whole = (self.out[at] - 1) * self.stride[at] + self.dilation[at] * (self.kernel[at] - 1) + 1
            self.pads.append((self.padding[at], max(whole - size - self.padding[at], 0)))

    def reduce(self, x: Array, start: Any, function: Callable[..., Array]) -> Array:
        """One value for each window."""
        ones = (1,) * self.lead
        reduced = lax.reduce_window(
            x,
            constant(start, x.dtype),
            function,
            (*ones, *self.kernel),
            (*ones, *self.stride),
            ((0, 0),) * self.lead + tuple(self.pads),
            window_dilation=(*ones, *self.dilation),
        )
        # Where the last window ends before the tensor does, more of them fit.
        return lax.slice(reduced, (0,) * x.ndim, (*x.shape[: self.lead], *self.out))

    def parts(self, x: Array, fill: Any) -> list[Array]:
        """For each place within a window, row by row, its element of every window."""
        pads = [(0, 0, 0)] * self.lead + [(*pad, 0) for pad in self.pads]
        padded = lax.pad(x, constant(fill, x.dtype), pads)
        found = []
        for place in itertools.product(*map(range, self.kernel)):
            starts = np.multiply(self.dilation, place)
            ends = starts + np.multiply(np.subtract(self.out, 1), self.stride) + 1
            found.append(
                lax.slice(
                    padded,
                    (*(0,) * self.lead, *starts.tolist()),
                    (*x.shape[: self.lead], *ends.tolist()),
                    (*(1,) * self.lead, *self.stride),
                )
            )
        return found

    def counts(self, at: int, size: Any, *, padded: bool) -> Any:
        """How many elements each window of a dim counts, which has a true size."""
        of = jnp if is_array(size) else np
        starts = np.arange(self.out[at], dtype=np.int32) * self.stride[at] - self.padding[at]
        ends = of.minimum(starts + self.kernel[at], size + self.padding[at])
        if not padded:
            starts, ends = of.maximum(starts, 0), of.minimum(ends, size)
        return (ends - starts).reshape([-1 if axis == at else 1 for axis in range(len(self.out))])


def _max_pool(rank: int) -> tuple[Callable[..., tuple[Array, Array]], Rule]:
    def lower(
        out: Sequence[Out],
        x: Array,
        kernel: Sizes,
        stride: Sizes = (),
        padding: Sizes = (0,),
        dilation: Sizes = (1,),
        ceil_mode: bool = False,
    ) -> tuple[Array, Array]:
        windows = Windows(x, out[0], kernel, stride, padding, dilation, rank)
        least = edge(x.dtype, largest=False)
        return windows.reduce(x, least, lax.max), _places_of_largest(windows, x, least)

    def rule(call: Call) -> Any:
        x = _plane(call, rank, edge(call.first.array.dtype, largest=False))
        values, places = call.as_it_is(x)
        found = values, _in_true_plane(call, x, places, rank)
        return call.results(found, lambda value: _axes(x, call.arena.axes(value), rank))

    return lower, rule


def _places_of_largest(windows: Windows, x: Array, least: Any) -> Array:
    """Flat positions in the unpadded plane, of the first of equals; of NaN the last."""
    plane = np.arange(math.prod(windows.sizes), dtype=np.int64).reshape(windows.sizes)
    places = jnp.broadcast_to(lax.full((), 0, INT64) + plane, x.shape)
    values, indices = windows.parts(x, least), windows.parts(places, -1)
    best, place = values[0], indices[0]
    for value, index in zip(values[1:], indices[1:], strict=True):
        better = ((value > best) | (place < 0)) & (index >= 0)
        if is_float(x.dtype):
            better |= value != value
        best, place = lax.select(better, value, best), lax.select(better, index, place)
    return place


def _in_true_plane(call: Call, x: Padded, places: Array, rank: int) -> Array:
    """Positions in the plane of the bucket as those in the plane of the call."""
    found, step = constant(0, INT64, places.shape), cast(1, INT64)
    for axis in reversed(range(x.ndim - rank, x.ndim)):
        size = constant(x.array.shape[axis], INT64, places.shape)
        found += lax.rem(places, size) * step
        places = lax.div(places, size)
        step *= cast(call.true(x, axis), INT64)
    return found


def _average_pool(rank: int) -> tuple[Callable[..., Array], Rule]:
    def lower(
        out: Out,
        x: Array,
        kernel: Sizes,
        stride: Sizes = (),
        padding: Sizes = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
        sizes: Sequence[Any] | None = None,
    ) -> Array:
        """`sizes` are the true ones of the plane, where elements are padding, which is 0."""
        windows = Windows(x, out, kernel, stride, padding, (1,), rank)
        added = windows.reduce(cast(x, wide(out.dtype)), 0, lax.add)
        divisor: Any = np.int32(divisor_override or 1)
        for at, size in enumerate(sizes or windows.sizes) if divisor_override is None else ():
            divisor = divisor * windows.counts(at, size, padded=count_include_pad)
        return lax.div(added, jnp.broadcast_to(cast(divisor, added.dtype), added.shape))

    def rule(call: Call) -> Padded:
        x = _plane(call, rank, 0)
        sizes = [call.true(x, axis) for axis in range(x.ndim - rank, x.ndim)]
        return Padded(call.as_it_is(x, sizes=sizes), _axes(x, call.axes, rank))

    return lower, rule


def _adaptive_average_pool(rank: int) -> tuple[Callable[..., Array], Rule]:
    """Windows of sizes that differ by one, dim by dim; they share out the true size."""

    def lower(out: Out, x: Array, _: Sizes) -> Array:
        value = cast(x, wide(out.dtype))
        for axis in range(x.ndim - rank, x.ndim):
            size, wanted = x.shape[axis], out.shape[axis]
            parts = []
            for at in range(wanted):
                first, last = at * size // wanted, -((-(at + 1) * size) // wanted)
                added = lax.reduce_sum(lax.slice_in_dim(value, first, last, axis=axis), (axis,))
                parts.append(lax.div(added, like(added, last - first)))
            value = jnp.stack(parts, axis)
        return value

    def rule(call: Call) -> Padded:
        x, own = _plane(call, rank, 0), call.axes
        x = Padded(cast(x.array, wide(call.out.dtype)), x.axes)
        for axis in range(x.ndim - rank, x.ndim):
            require(own[axis : axis + 1], "windows for each place")
            x = call.arena.with_axis(x, axis, own[axis], _shared(call, x, axis, call.out.shape[axis]))
        return x

    return lower, rule


def _shared(call: Call, x: Padded, axis: int, wanted: int) -> Array:
    size, numbers = call.true(x, axis), lax.iota(INT32, wanted)
    first, last = numbers * size // wanted, -((-(numbers + 1) * size) // wanted)
    places = lax.iota(INT32, x.array.shape[axis])
    within = (places >= first[:, None]) & (places < last[:, None])
    parts = []
    for number in range(wanted):
        flags = lax.broadcast_in_dim(within[number], x.array.shape, (axis,))
        added = lax.reduce_sum(lax.select(flags, x.array, like(x.array, 0)), (axis,))
        parts.append(added / cast(last[number] - first[number], added.dtype))
    return jnp.stack(parts, axis)


OPS: Final[dict[Any, Any]] = {
    aten.convolution.default: (convolution, _padded_convolution),
    aten.convolution_backward.default: convolution_backward,
    aten.max_pool2d_with_indices.default: _max_pool(2),
    aten.max_pool3d_with_indices.default: _max_pool(3),
    aten.avg_pool1d.default: _average_pool(1),
    aten.avg_pool2d.default: _average_pool(2),
    aten.avg_pool3d.default: _average_pool(3),
    aten._adaptive_avg_pool2d.default: _adaptive_average_pool(2),
    aten._adaptive_avg_pool3d.default: _adaptive_average_pool(3),
}
