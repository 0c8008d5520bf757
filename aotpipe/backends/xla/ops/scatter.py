"""Writing at positions that the run computes; what is out of bounds an assert of the program tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.numpy as jnp
import torch
from jax import lax

from aotpipe.backends.xla.ops.indexing import grid
from aotpipe.backends.xla.values import (
    BOOL,
    INT64,
    Array,
    Out,
    axis_of,
    broadcast,
    cast,
    constant,
    is_array,
    wide,
)

aten = torch.ops.aten
Place = tuple[Any, ...]


def _placed(x: Array, dim: int, places: Array) -> tuple[Array, Array, Place]:
    """The tensor, its index, and where that points; a 0-d tensor as one of rank 1."""
    flat = lax.reshape(x, (1,)) if not x.ndim else x
    index = lax.reshape(places, (places.size,)) if flat.ndim == 1 else places
    return flat, index, grid(index.shape, axis_of(dim, flat.ndim), cast(index, INT64))


def _source(source: Any, index: Array, dtype: Any) -> Array:
    """As much of the source as there are indices."""
    if not is_array(source):
        return constant(source, dtype, index.shape)
    if not source.ndim and index.ndim:
        source = lax.reshape(source, (1,) * index.ndim)
    if source.shape == (1,) * index.ndim:
        return broadcast(cast(source, dtype), index.shape)
    return cast(lax.slice(source, (0,) * index.ndim, index.shape), dtype)


def scatter(out: Out, x: Array, dim: int, places: Array, source: Any) -> Array:
    """Replaced."""
    flat, index, place = _placed(x, dim, places)
    if not index.size:
        return x
    return lax.reshape(flat.at[place].set(_source(source, index, x.dtype), mode="drop"), out.shape)


def scatter_add(out: Out, x: Array, dim: int, places: Array, source: Array) -> Array:
    """Added, half precision in float32."""
    flat, index, place = _placed(x, dim, places)
    if not index.size:
        return x
    return lax.reshape(_add(flat, place, _source(source, index, x.dtype)), out.shape)


def _add(x: Array, place: Place, source: Array) -> Array:
    if x.dtype == BOOL:
        return x.at[place].max(source, mode="drop")
    work = wide(x.dtype)
    return cast(cast(x, work).at[place].add(cast(source, work), mode="drop"), x.dtype)


def index_put(
    _: Out, x: Array, places: Sequence[Array | None], values: Array, accumulate: bool = False, *__: Any
) -> Array:
    """At several indices at once."""
    place = tuple(slice(None) if one is None else cast(one, INT64) for one in places)
    wanted = x.at[place].get(mode="clip").shape
    values = jnp.broadcast_to(cast(values, x.dtype), wanted)
    if 0 in wanted:
        return x
    return _add(x, place, values) if accumulate else x.at[place].set(values, mode="drop")


OPS: Final[dict[Any, Callable[..., Any]]] = {
    aten.scatter.src: scatter,
    aten.scatter.value: scatter,
    aten.scatter_add.default: scatter_add,
    aten.index_put.default: index_put,
    aten._unsafe_index_put.default: index_put,
}
