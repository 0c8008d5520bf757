"""Reductions over dims: sums, extremes, any and all, moments; softmax; scans along a dim; and sorting.

In a bucket, what does not count is replaced by what changes nothing, and counts are true ones. Sorts are
stable, NaN counts as the largest, and padding sorts last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from aotpipe.backends.xla.ops.pointwise import like
from aotpipe.backends.xla.padding.rules import Call, Padded, Rule, along, bucket_number, kept, reduced
from aotpipe.backends.xla.values import (
    BOOL,
    INT64,
    Array,
    DType,
    Out,
    axes_of,
    axis_of,
    cast,
    constant,
    is_complex,
    is_float,
    wide,
)

aten = torch.ops.aten
Dims = int | Sequence[int] | None


def shaped(out: Out, value: Array) -> Array:
    """The value with the dims of size 1 that `keepdim` asks for."""
    return lax.reshape(value, out.shape)


def _sum_or_product(start: int, join: Callable[..., Array]) -> tuple[Callable[..., Array], Rule]:
    """Of half precision in float32, of integers in the result's dtype."""

    def lower(out: Out, x: Array, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
        value = cast(x, wide(out.dtype))
        function = join
        if value.dtype == BOOL:  # whose product is their and, and whose sum their or
            function = lax.bitwise_and if start else lax.bitwise_or
        return shaped(out, lax.reduce(value, constant(start, value.dtype), function, axes_of(dim, x.ndim)))

    return lower, reduced(lambda _: start)


def mean(
    out: Out, x: Array, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None, count: Any = None
) -> Array:
    """The sum by the count, which is given where elements are padding."""
    axes = axes_of(dim, x.ndim)
    return shaped(out, _average(cast(x, wide(out.dtype)), axes, _count(x, axes) if count is None else count))


def _average(x: Array, axes: Sequence[int], count: Any) -> Array:
    added = lax.reduce_sum(x, axes)
    return lax.div(added, jnp.broadcast_to(cast(count, added.dtype), added.shape))


def _count(x: Array, axes: Sequence[int]) -> int:
    return math.prod(x.shape[axis] for axis in axes)


def _true_count(call: Call, axes: Sequence[int], dtype: DType) -> Array:
    """How many elements count along axes of the first operand, as a number of a dtype."""
    return math.prod((cast(call.true(call.first, axis), dtype) for axis in axes), start=cast(1, dtype))


def _padded_mean(call: Call) -> Padded:
    x, axes = call.first, axes_of(call.get(1, "dim"), call.first.ndim)
    count = _true_count(call, axes, wide(call.out.dtype))
    return Padded(call.as_it_is(call.arena.filled(x, axes, 0), count=count), kept(x, axes, call.value.dim()))


def extreme(x: Array, axes: Sequence[int], *, largest: bool) -> Array:
    """The largest or smallest over axes; NaN where there is one."""
    if x.dtype == BOOL:
        return (lax.reduce_or if largest else lax.reduce_and)(x, axes)
    return (lax.reduce_max if largest else lax.reduce_min)(x, axes)


def edge(dtype: Any, *, largest: bool) -> Any:
    """The largest or smallest value of a dtype."""
    if dtype == BOOL:
        return largest
    if is_float(dtype):
        return np.inf if largest else -np.inf
    info = np.iinfo(dtype)
    return int(info.max if largest else info.min)


def _extreme(*, largest: bool) -> tuple[Callable[..., Array], Rule]:
    def lower(out: Out, x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
        return shaped(out, extreme(x, axes_of(dim, x.ndim), largest=largest))

    return lower, reduced(lambda dtype: edge(dtype, largest=not largest))


def place_of_extreme(x: Array, axis: int, *, largest: bool) -> Array:
    """The first position of the largest or smallest along an axis, as int64; NaN counts as both."""
    if x.dtype == BOOL:
        x = cast(x, np.dtype(np.int32))
    best = lax.expand_dims(extreme(x, (axis,), largest=largest), (axis,))
    found = x == best
    if is_float(x.dtype):
        found = lax.select(jnp.broadcast_to(best != best, x.shape), x != x, found)
    places = lax.broadcasted_iota(INT64, x.shape, axis)
    none = max(x.shape[axis] - 1, 0)
    return lax.reduce(lax.select(found, places, like(places, none)), constant(none, INT64), lax.min, (axis,))


def _extreme_and_place(*, largest: bool) -> tuple[Callable[..., tuple[Array, Array]], Rule]:
    def lower(out: Sequence[Out], x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
        if not x.ndim:
            return x, constant(0, INT64)
        axis = axis_of(dim, x.ndim)
        places = place_of_extreme(x, axis, largest=largest)
        return shaped(out[0], extreme(x, (axis,), largest=largest)), shaped(out[1], places)

    return lower, _along_one(largest=largest)


def _place(*, largest: bool) -> tuple[Callable[..., Array], Rule]:
    def lower(out: Out, x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        if dim is None or not x.ndim:
            x, dim = lax.reshape(x, (x.size,)), 0
        return shaped(out, place_of_extreme(x, axis_of(dim, x.ndim), largest=largest))

    return lower, _along_one(largest=largest)


def _along_one(*, largest: bool) -> Rule:
    """Along one axis, or over the flat tensor where no dim is named."""

    def rule(call: Call) -> Any:
        dim = call.get(1, "dim")
        x = call.arena.reshape(call.first, [call.first.size]) if dim is None else call.first
        axis = axis_of(dim or 0, x.ndim)
        x = call.arena.plain(x, (axis,))
        x = call.arena.filled(x, (axis,), edge(x.array.dtype, largest=not largest))
        found = call.as_it_is(x, dim or 0)
        return found if dim is None else call.results(found, lambda value: kept(x, (axis,), value.dim()))

    return rule


def _truth(*, every: bool) -> tuple[Callable[..., Array], Rule]:
    def axes(dim: Dims, rank: int) -> tuple[int, ...]:
        # Of an empty list of dims nothing is reduced.
        return () if dim in ([], ()) else axes_of(dim, rank)

    def lower(out: Out, x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
        return shaped(out, extreme(cast(x, BOOL), axes(dim, x.ndim), largest=not every))

    return lower, reduced(lambda _: every, axes)


def _moments(*, root: bool, average: bool) -> tuple[Callable[..., Any], Rule]:
    """The variance, or its root, and where asked for the mean; in two passes as eager's."""

    def lower(
        out: Any,
        x: Array,
        dim: Dims = None,
        *,
        correction: Any = None,
        keepdim: bool = False,
        count: Any = None,
        mask: Any = None,
    ) -> Any:
        """`count` and `mask` say what counts where elements are padding, which is 0."""
        outs = out if average else (out,)
        value = cast(x, wide(x.dtype if is_complex(x.dtype) else outs[-1].dtype))
        axes = axes_of(dim, x.ndim)
        count = _count(x, axes) if count is None else count
        middle = _average(value, axes, count)
        off = value - lax.expand_dims(middle, axes)
        square = lax.real(off * lax.conj(off)) if is_complex(off.dtype) else off * off
        if mask is not None:
            square = lax.select(mask, square, like(square, 0))
        found = _average(square, axes, jnp.maximum(count - (1 if correction is None else correction), 0))
        results = [lax.sqrt(found) if root else found, *([middle] if average else [])]
        shapes = [shaped(each, result) for each, result in zip(outs, results, strict=True)]
        return shapes if average else shapes[0]

    def rule(call: Call) -> Any:
        x, axes = call.first, axes_of(call.get(1, "dim"), call.first.ndim)
        real = wide((call.out[0] if average else call.out).dtype)
        found = call.as_it_is(
            call.arena.filled(x, axes, 0), count=_true_count(call, axes, real), mask=call.arena.mask(x, axes)
        )
        return call.results(found, lambda value: kept(x, axes, value.dim()))

    return lower, rule


def _softmax(function: Callable[[Array, int], Array]) -> tuple[Callable[..., Array], Rule]:
    """Half precision is computed in float32."""

    def lower(out: Out, x: Array, dim: int, half_to_float: bool = False) -> Array:
        x = lax.reshape(cast(x, wide(out.dtype)), x.shape or (1,))
        return shaped(out, function(x, axis_of(dim, x.ndim)))

    return lower, along(1, lambda call: edge(call.first.array.dtype, largest=False))


def _running(function: Callable[..., Array]) -> tuple[Callable[..., Array], Rule]:
    def lower(out: Out, x: Array, dim: int, *, dtype: Any = None) -> Array:
        value = cast(x, wide(out.dtype))
        return function(value, axis_of(dim, x.ndim)) if x.ndim else value

    # From the front on, what does not count comes last.
    return lower, along(1)


def _running_extreme(after: Callable[[Array, Array], Array]) -> tuple[Callable[..., Any], Rule]:
    """The last of equals counts; NaN stays."""

    def later(left: tuple[Array, Array], right: tuple[Array, Array]) -> list[Array]:
        taken = after(right[0], left[0])
        if is_float(right[0].dtype):
            taken |= right[0] != right[0]
        return [lax.select(taken, new, old) for old, new in zip(left, right, strict=True)]

    def lower(_: Sequence[Out], x: Array, dim: int) -> Any:
        if not x.ndim:
            return x, constant(0, INT64)
        axis = axis_of(dim, x.ndim)
        return lax.associative_scan(later, [x, lax.broadcasted_iota(INT64, x.shape, axis)], axis=axis)

    return lower, along(1)


def sort(
    _: Sequence[Out], x: Array, dim: int = -1, descending: bool = False, *, stable: bool | None = True
) -> tuple[Array, Array]:
    """The values in order, and where each came from."""
    if not x.ndim:
        return x, constant(0, INT64)
    axis = axis_of(dim, x.ndim)
    keys = cast(x, np.dtype(np.int8)) if x.dtype == BOOL else x
    places = lax.broadcasted_iota(INT64, x.shape, axis)
    if descending:
        # What comes last of equals comes first after the reversal of both.
        keys, places = lax.rev(keys, (axis,)), lax.rev(places, (axis,))
    values, places = lax.sort((keys, places), dimension=axis, is_stable=True, num_keys=1)
    if descending:
        values, places = lax.rev(values, (axis,)), lax.rev(places, (axis,))
    return cast(values, x.dtype), places


def topk(
    _: Sequence[Out], x: Array, k: int, dim: int = -1, largest: bool = True, is_sorted: bool = True
) -> list[Array]:
    """The first of all in order."""
    found = sort(_, x, dim, largest)
    axis = axis_of(dim, x.ndim)
    return [lax.slice_in_dim(each, 0, k, axis=axis) if x.ndim else each for each in found]


def _last(place: int, name: str, default: bool) -> Rule:
    """The padding gets the value that sorts last, by the operand that says in which order."""

    def fill(call: Call) -> Any:
        dtype, descending = call.first.array.dtype, call.get(place, name, default)
        return np.nan if is_float(dtype) and not descending else edge(dtype, largest=not descending)

    return along(place - 1, fill)


def _padded_topk(call: Call) -> Any:
    x, k, *more = call.args
    return _last(3, "largest", default=True)(replace(call, args=(x, bucket_number(k), *more)))


_SORT: Final = _last(2, "descending", default=False)

OPS: Final[dict[Any, Any]] = {
    (aten.sum.default, aten.sum.dim_IntList): _sum_or_product(0, lax.add),
    (aten.mean.default, aten.mean.dim): (mean, _padded_mean),
    (aten.prod.default, aten.prod.dim_int): _sum_or_product(1, lax.mul),
    (aten.amax.default, aten.max.default): _extreme(largest=True),
    (aten.amin.default, aten.min.default): _extreme(largest=False),
    aten.max.dim: _extreme_and_place(largest=True),
    aten.min.dim: _extreme_and_place(largest=False),
    aten.argmax.default: _place(largest=True),
    aten.argmin.default: _place(largest=False),
    (aten.any.default, aten.any.dim, aten.any.dims): _truth(every=False),
    (aten.all.default, aten.all.dim, aten.all.dims): _truth(every=True),
    aten.var.correction: _moments(root=False, average=False),
    aten.std.correction: _moments(root=True, average=False),
    aten.var_mean.correction: _moments(root=False, average=True),
    aten.std_mean.correction: _moments(root=True, average=True),
    aten._softmax.default: _softmax(jax.nn.softmax),
    aten._log_softmax.default: _softmax(jax.nn.log_softmax),
    aten.cumsum.default: _running(lax.cumsum),
    aten.cumprod.default: _running(lax.cumprod),
    aten.logcumsumexp.default: _running(lax.cumlogsumexp),
    aten.cummax.default: _running_extreme(lax.ge),
    aten.cummin.default: _running_extreme(lax.le),
    (aten.sort.default, aten.sort.stable): (sort, _SORT),
    aten.argsort.default: (lambda *args, **named: sort(*args, **named)[1], _SORT),
    aten.topk.default: (topk, _padded_topk),
}
