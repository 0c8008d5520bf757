"""Reductions over dims: sums, products, extremes, any and all, moments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from aotpipe.backends.xla.ops.unary import like
from aotpipe.backends.xla.values import (
    BOOL,
    INT64,
    Array,
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


def total(x: Array, axes: Sequence[int]) -> Array:
    """The sum over axes."""
    return lax.reduce(x, constant(0, x.dtype), lax.add, tuple(axes))


def sum_(out: Out, x: Array, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
    """Of half precision in float32, of integers in the result's dtype."""
    return shaped(out, total(cast(x, wide(out.dtype)), axes_of(dim, x.ndim)))


def mean(out: Out, x: Array, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
    """The sum by the count."""
    axes = axes_of(dim, x.ndim)
    added = total(cast(x, wide(out.dtype)), axes)
    return shaped(out, lax.div(added, like(added, _count(x, axes))))


def _count(x: Array, axes: Sequence[int]) -> int:
    return int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))


def prod(out: Out, x: Array, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
    """The product."""
    value = cast(x, wide(out.dtype))
    multiply = lax.bitwise_and if value.dtype == BOOL else lax.mul
    return shaped(out, lax.reduce(value, constant(1, value.dtype), multiply, axes_of(dim, x.ndim)))


def extreme(x: Array, axes: Sequence[int], *, largest: bool) -> Array:
    """The largest or smallest over axes; NaN where there is one."""
    if x.dtype == BOOL:
        choose: Callable[..., Array] = lax.bitwise_or if largest else lax.bitwise_and
    else:
        choose = lax.max if largest else lax.min
    return lax.reduce(x, constant(edge(x.dtype, largest=not largest), x.dtype), choose, tuple(axes))


def edge(dtype: Any, *, largest: bool) -> Any:
    """The largest or smallest value of a dtype."""
    if dtype == BOOL:
        return largest
    if is_float(dtype):
        return np.inf if largest else -np.inf
    info = np.iinfo(dtype)
    return int(info.max if largest else info.min)


def _extreme(largest: bool) -> Callable[..., Array]:
    def lower(out: Out, x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
        return shaped(out, extreme(x, axes_of(dim, x.ndim), largest=largest))

    return lower


def place_of_extreme(x: Array, axis: int, *, largest: bool) -> Array:
    """The first position of the largest or smallest along an axis, as int64; NaN counts as both."""
    if x.dtype == BOOL:
        x = cast(x, np.dtype(np.int32))
    best = lax.expand_dims(extreme(x, (axis,), largest=largest), (axis,))
    found = lax.eq(x, jnp.broadcast_to(best, x.shape))
    if is_float(x.dtype):
        found = lax.select(jnp.broadcast_to(lax.ne(best, best), x.shape), lax.ne(x, x), found)
    places = lax.broadcasted_iota(INT64, x.shape, axis)
    none = like(places, max(x.shape[axis] - 1, 0))
    return lax.reduce(
        lax.select(found, places, none), constant(max(x.shape[axis] - 1, 0), INT64), lax.min, (axis,)
    )


def _extreme_and_place(largest: bool) -> Callable[..., tuple[Array, Array]]:
    def lower(out: Sequence[Out], x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
        if not x.ndim:
            return x, constant(0, INT64)
        axis = axis_of(dim, x.ndim)
        places = place_of_extreme(x, axis, largest=largest)
        return shaped(out[0], extreme(x, (axis,), largest=largest)), shaped(out[1], places)

    return lower


def _place(largest: bool) -> Callable[..., Array]:
    def lower(out: Out, x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        if dim is None or not x.ndim:
            x, dim = lax.reshape(x, (x.size,)), 0
        return shaped(out, place_of_extreme(x, axis_of(dim, x.ndim), largest=largest))

    return lower


def _truth(every: bool) -> Callable[..., Array]:
    def lower(out: Out, x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
        axes = tuple(range(x.ndim)) if dim is None else axes_of_listed(dim, x.ndim)
        return shaped(out, extreme(cast(x, BOOL), axes, largest=not every))

    return lower


def axes_of_listed(dim: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """Dims counted from the front; none where none is named."""
    listed = [dim] if isinstance(dim, int) else list(dim)
    return tuple(sorted({one % rank for one in listed})) if rank else ()


def moments(x: Array, axes: Sequence[int], correction: float) -> tuple[Array, Array]:
    """The variance and the mean over axes, kept as dims of size 1, in two passes as eager's."""
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    count = _count(x, axes)
    average = lax.reshape(lax.div(total(x, axes), like(total(x, axes), count)), kept)
    off = lax.sub(x, jnp.broadcast_to(average, x.shape))
    square = lax.mul(off, lax.conj(off)) if is_complex(x.dtype) else lax.mul(off, off)
    if is_complex(x.dtype):
        square = lax.real(square)
    added = lax.reshape(total(square, axes), kept)
    return lax.div(added, like(added, max(count - correction, 0.0))), average


def variance(out: Out, x: Array, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> Array:
    """Over `count - correction`, 1 where it is not given."""
    return _moments(x, out.dtype, dim, correction, out)[0]


def deviation(
    out: Out, x: Array, dim: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> Array:
    """The root of the variance."""
    return lax.sqrt(_moments(x, out.dtype, dim, correction, out)[0])


def variance_and_mean(
    out: Sequence[Out], x: Array, dim: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Array, Array]:
    """Both."""
    return _moments(x, out[1].dtype, dim, correction, out[0])


def deviation_and_mean(
    out: Sequence[Out], x: Array, dim: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Array, Array]:
    """Both."""
    found, average = _moments(x, out[1].dtype, dim, correction, out[0])
    return lax.sqrt(found), average


def _moments(x: Array, dtype: Any, dim: Dims, correction: Any, out: Out) -> tuple[Array, Array]:
    value = cast(x, wide(x.dtype if is_complex(x.dtype) else dtype))
    found, average = moments(value, axes_of(dim, x.ndim), 1 if correction is None else correction)
    return shaped(out, found), shaped(out, average)


OPS: Final[dict[Any, Callable[..., Any]]] = {
    aten.sum.default: sum_,
    aten.sum.dim_IntList: sum_,
    aten.mean.default: mean,
    aten.mean.dim: mean,
    aten.prod.default: prod,
    aten.prod.dim_int: prod,
    aten.amax.default: _extreme(largest=True),
    aten.amin.default: _extreme(largest=False),
    aten.max.default: _extreme(largest=True),
    aten.min.default: _extreme(largest=False),
    aten.max.dim: _extreme_and_place(largest=True),
    aten.min.dim: _extreme_and_place(largest=False),
    aten.argmax.default: _place(largest=True),
    aten.argmin.default: _place(largest=False),
    aten.any.default: _truth(every=False),
    aten.any.dim: _truth(every=False),
    aten.any.dims: _truth(every=False),
    aten.all.default: _truth(every=True),
    aten.all.dim: _truth(every=True),
    aten.all.dims: _truth(every=True),
    aten.var.correction: variance,
    aten.std.correction: deviation,
    aten.var_mean.correction: variance_and_mean,
    aten.std_mean.correction: deviation_and_mean,
}
