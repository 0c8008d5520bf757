"""Reading at positions that the run computes; what is out of bounds an assert of the program tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.numpy as jnp
import torch
from jax import lax

from aotpipe.backends.xla.values import BOOL, INT32, INT64, Array, Out, axis_of, cast, constant

aten = torch.ops.aten


def taken(x: Array, places: Array, axis: int) -> Array:
    """Slices of a dim, none of them out of bounds."""
    return jnp.take(x, places, axis=axis, mode="clip")


def index_select(_: Out, x: Array, dim: int, places: Array) -> Array:
    """Slices of a dim."""
    if not x.ndim:
        return lax.reshape(x, ())
    return taken(x, lax.reshape(places, (places.size,)), axis_of(dim, x.ndim))


def embedding(_: Out, weight: Array, places: Array, *__: Any, **___: Any) -> Array:
    """Rows."""
    return taken(weight, places, 0)


def grid(shape: Sequence[int], axis: int, places: Array) -> tuple[Array, ...]:
    """An index per dim: each element's own, but along one dim the given."""
    return tuple(
        places if at == axis else lax.broadcasted_iota(INT64, tuple(shape), at) for at in range(len(shape))
    )


def gather(_: Out, x: Array, dim: int, places: Array, *, sparse_grad: bool = False) -> Array:
    """Along a dim, each element where its index says."""
    if not x.ndim:
        return jnp.broadcast_to(x, places.shape)
    if not places.ndim:
        return lax.reshape(taken(lax.reshape(x, (x.size,)), places, 0), ())
    axis = axis_of(dim, x.ndim)
    return x.at[grid(places.shape, axis, cast(places, INT64))].get(mode="clip")


def index(_: Out, x: Array, places: Sequence[Array | None]) -> Array:
    """At several indices at once."""
    chosen = tuple(slice(None) if one is None else cast(one, INT64) for one in places)
    return x.at[chosen].get(mode="clip")


def take(_: Out, x: Array, places: Array) -> Array:
    """Of the flat tensor; from the end where negative."""
    places = cast(places, INT64)
    wrapped = lax.select(
        lax.lt(places, constant(0, INT64, places.shape)),
        lax.add(places, constant(x.size, INT64, places.shape)),
        places,
    )
    return taken(lax.reshape(x, (x.size,)), wrapped, 0)


def nonzero(out: Out, x: Array) -> Array:
    """Where an array is not zero, row by row; the places behind them are the first one."""
    count, rank = out.shape
    flat = lax.reshape(cast(x, BOOL), (x.size,))
    if not count or not rank:
        return constant(0, INT64, out.shape)
    # Written rather than counted, as jax's own does: libtpu takes 14 s over that, and gives megabytes.
    before = lax.sub(lax.cumsum(cast(flat, INT32)), cast(1, INT32))
    row = lax.select(flat, before, constant(count, INT32, flat.shape))
    at = constant(0, INT32, (count,)).at[row].set(lax.iota(INT32, x.size), mode="drop")
    return jnp.stack([cast(place, INT64) for place in jnp.unravel_index(at, x.shape)], 1)


OPS: Final[dict[Any, Callable[..., Any]]] = {
    aten.index_select.default: index_select,
    aten.embedding.default: embedding,
    aten.gather.default: gather,
    aten.index.Tensor: index,
    aten._unsafe_index.Tensor: index,
    aten.take.default: take,
    aten.nonzero.default: nonzero,
}
