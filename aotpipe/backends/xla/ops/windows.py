"""Convolution and pooling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from aotpipe.backends.xla.ops.blas import PRECISION
from aotpipe.backends.xla.ops.reduction import edge
from aotpipe.backends.xla.ops.unary import like
from aotpipe.backends.xla.values import (
    INT64,
    Array,
    Out,
    cast,
    constant,
    is_float,
    wide,
)

aten = torch.ops.aten
Sizes = Sequence[int]


def _each(sizes: int | Sizes, rank: int) -> list[int]:
    """One size for each dim."""
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


def _turned(weight: Array, groups: int) -> Array:
    """A transposed convolution's weight as that of a plain one."""
    inputs, outputs, *kernel = weight.shape
    weight = lax.reshape(weight, (groups, inputs // groups, outputs, *kernel))
    weight = lax.reshape(jnp.swapaxes(weight, 1, 2), (groups * outputs, inputs // groups, *kernel))
    return lax.rev(weight, tuple(range(2, weight.ndim)))


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
        padded = lax.pad(
            x, constant(fill, x.dtype), [(0, 0, 0)] * self.lead + [(*pad, 0) for pad in self.pads]
        )
        found = []
        for place in itertools.product(*map(range, self.kernel)):
            starts = [step * at for step, at in zip(self.dilation, place, strict=True)]
            ends = [
                start + (size - 1) * stride + 1
                for start, size, stride in zip(starts, self.out, self.stride, strict=True)
            ]
            found.append(
                lax.slice(
                    padded,
                    (0,) * self.lead + tuple(starts),
                    (*x.shape[: self.lead], *ends),
                    (1,) * self.lead + tuple(self.stride),
                )
            )
        return found


def _max_pool(rank: int) -> Callable[..., tuple[Array, Array]]:
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

    return lower


def _places_of_largest(windows: Windows, x: Array, least: Any) -> Array:
    """Flat positions in the unpadded plane, of the first of equals; of NaN the last."""
    plane = np.arange(math.prod(windows.sizes), dtype=np.int64).reshape(windows.sizes)
    places = jnp.broadcast_to(lax.full((), 0, INT64) + plane, x.shape)
    values, indices = windows.parts(x, least), windows.parts(places, -1)
    best, place = values[0], indices[0]
    for value, index in zip(values[1:], indices[1:], strict=True):
        better = lax.bitwise_or(lax.gt(value, best), lax.lt(place, like(place, 0)))
        better = lax.bitwise_and(better, lax.ge(index, like(index, 0)))
        if is_float(x.dtype):
            better = lax.bitwise_or(better, lax.ne(value, value))
        best, place = lax.select(better, value, best), lax.select(better, index, place)
    return place


def _average_pool(rank: int) -> Callable[..., Array]:
    def lower(
        out: Out,
        x: Array,
        kernel: Sizes,
        stride: Sizes = (),
        padding: Sizes = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Array:
        windows = Windows(x, out, kernel, stride, padding, (1,), rank)
        added = windows.reduce(cast(x, wide(out.dtype)), 0, lax.add)
        counts = np.full(windows.out, divisor_override or 1, np.int64)
        if divisor_override is None:
            for at in range(rank):
                shape = [-1 if axis == at else 1 for axis in range(rank)]
                counts = counts * _counts(windows, at, padded=count_include_pad).reshape(shape)
        divisor = lax.convert_element_type(np.broadcast_to(counts, out.shape), added.dtype)
        return lax.div(added, divisor)

    return lower


def _counts(windows: Windows, at: int, *, padded: bool) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How many elements each window of a dim counts."""
    pad, size = windows.padding[at], windows.sizes[at]
    starts = np.arange(windows.out[at]) * windows.stride[at] - pad
    ends = np.minimum(starts + windows.kernel[at], size + pad)
    if not padded:
        starts, ends = np.maximum(starts, 0), np.minimum(ends, size)
    return (ends - starts).astype(np.int64)


def _adaptive_average_pool(rank: int) -> Callable[..., Array]:
    """Windows of sizes that differ by one, dim by dim."""

    def lower(out: Out, x: Array, _: Sizes) -> Array:
        value = cast(x, wide(out.dtype))
        for axis in range(x.ndim - rank, x.ndim):
            size, wanted = x.shape[axis], out.shape[axis]
            parts = []
            for at in range(wanted):
                first, last = at * size // wanted, -((-(at + 1) * size) // wanted)
                part = lax.slice_in_dim(value, first, last, axis=axis)
                added = lax.reduce(part, constant(0, value.dtype), lax.add, (axis,))
                parts.append(lax.expand_dims(lax.div(added, like(added, last - first)), (axis,)))
            value = lax.concatenate(parts, axis)
        return value

    return lower


OPS: Final[dict[Any, Callable[..., Any]]] = {
    aten.convolution.default: convolution,
    aten.max_pool2d_with_indices.default: _max_pool(2),
    aten.max_pool3d_with_indices.default: _max_pool(3),
    aten.avg_pool1d.default: _average_pool(1),
    aten.avg_pool2d.default: _average_pool(2),
    aten.avg_pool3d.default: _average_pool(3),
    aten._adaptive_avg_pool2d.default: _adaptive_average_pool(2),
    aten._adaptive_avg_pool3d.default: _adaptive_average_pool(3),
}
