"""Running sums, products and extremes along a dim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.numpy as jnp
import torch
from jax import lax

from aotpipe.backends.xla.values import INT64, Array, Out, axis_of, cast, constant, is_float, wide

aten = torch.ops.aten


def _running(function: Callable[..., Array]) -> Callable[..., Array]:
    def lower(out: Out, x: Array, dim: int, *, dtype: Any = None) -> Array:
        value = cast(x, wide(out.dtype))
        return function(value, axis_of(dim, x.ndim)) if x.ndim else value

    return lower


def _running_extreme(after: Callable[[Array, Array], Array]) -> Callable[..., tuple[Array, Array]]:
    """The last of equals counts; NaN stays."""

    def lower(_: Sequence[Out], x: Array, dim: int) -> tuple[Array, Array]:
        if not x.ndim:
            return x, constant(0, INT64)
        axis = axis_of(dim, x.ndim)
        places = lax.broadcasted_iota(INT64, x.shape, axis)

        def later(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
            taken = after(right[0], left[0])
            if is_float(x.dtype):
                taken = lax.bitwise_or(taken, lax.ne(right[0], right[0]))
            return jnp.where(taken, right[0], left[0]), jnp.where(taken, right[1], left[1])

        values, found = lax.associative_scan(later, (x, places), axis=axis)
        return values, found

    return lower


OPS: Final[dict[Any, Callable[..., Any]]] = {
    aten.cumsum.default: _running(lambda x, axis: lax.cumsum(x, axis)),
    aten.cumprod.default: _running(lambda x, axis: lax.cumprod(x, axis)),
    aten.logcumsumexp.default: _running(lambda x, axis: lax.cumlogsumexp(x, axis)),
    aten.cummax.default: _running_extreme(lax.ge),
    aten.cummin.default: _running_extreme(lax.le),
}
