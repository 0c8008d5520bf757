"""Reading and writing at positions that the run computes.

The program's own asserts tell which positions are out of bounds. In a bucket, negative positions count from
the true end, and what does not count is written nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.numpy as jnp
import sympy
import torch
from jax import lax

from aotpipe.backends.xla.padding.rules import Call, Padded, padded
from aotpipe.backends.xla.values import (
    BOOL,
    INT32,
    INT64,
    Array,
    Out,
    axis_of,
    cast,
    constant,
    is_array,
    wide,
)

aten = torch.ops.aten
Place = tuple[Any, ...]


def _taken(x: Array, places: Array, axis: int) -> Array:
    """Slices of a dim, none of them out of bounds."""
    return jnp.take(x, places, axis=axis, mode="clip")


def _padded_index_select(call: Call) -> Any:
    x, dim, places = call.args
    if not x.ndim:
        return call.as_it_is()
    axis = axis_of(dim, x.ndim)
    x = call.arena.plain(x, (axis,))
    places = places if places.ndim else call.arena.reshape(places, [sympy.Integer(1)])
    return Padded(call.as_it_is(x, axis, places), (*x.axes[:axis], places.axes[0], *x.axes[axis + 1 :]))


def _padded_embedding(call: Call) -> Padded:
    weight, places = call.arena.plain(call.args[0], (0,)), call.args[1]
    return Padded(call.as_it_is(weight), (*places.axes, *weight.axes[1:]))


def _grid(shape: Sequence[int], axis: int, places: Array) -> Place:
    """An index per dim: each element's own, but along one dim the given."""
    return tuple(
        places if at == axis else lax.broadcasted_iota(INT64, tuple(shape), at) for at in range(len(shape))
    )


def gather(_: Out, x: Array, dim: int, places: Array, *, sparse_grad: bool = False) -> Array:
    """Along a dim, each element where its index says."""
    if not x.ndim:
        return jnp.broadcast_to(x, places.shape)
    if not places.ndim:
        return lax.reshape(_taken(lax.reshape(x, (x.size,)), places, 0), ())
    return x.at[_grid(places.shape, axis_of(dim, x.ndim), cast(places, INT64))].get(mode="clip")


def _padded_gather(call: Call) -> Padded:
    x, places = call.arena.plain(call.args[0]), call.arena.plain(call.args[2])
    return Padded(call.as_it_is(x, call.args[1], places), places.axes)


def _at(places: Sequence[Array | None]) -> Place:
    return tuple(slice(None) if one is None else cast(one, INT64) for one in places)


def index(_: Out, x: Array, places: Sequence[Array | None]) -> Array:
    """At several indices at once."""
    return x.at[_at(places)].get(mode="clip")


def _counted(call: Call, x: Padded, places: Sequence[Padded | None]) -> list[Any]:
    """Indices of several dims, none negative along one that is padded."""
    found: list[Any] = []
    for axis, one in enumerate(places):
        if one is not None:
            one = call.arena.plain(one)
            if padded(x.axes[axis]):
                at = cast(one.array, INT64)
                one = Padded(jnp.where(at < 0, at + cast(call.true(x, axis), INT64), at), one.axes)
        found.append(one)
    return found


def _padded_index(call: Call) -> Any:
    x = call.arena.plain(call.first)
    return call.as_it_is(x, _counted(call, x, call.args[1]))


def take(_: Out, x: Array, places: Array) -> Array:
    """Of the flat tensor; from the end where negative."""
    places = cast(places, INT64)
    return _taken(lax.reshape(x, (x.size,)), lax.select(places < 0, places + x.size, places), 0)


def _padded_take(call: Call) -> Padded:
    x = call.arena.plain(call.arena.reshape(call.first, [call.first.size]))
    (places,) = _counted(call, x, [call.args[1]])
    return Padded(call.as_it_is(x, places), places.axes)


def nonzero(out: Out, x: Array) -> Array:
    """Where an array is not zero, row by row; the places behind them are the first one."""
    count, rank = out.shape
    flat = lax.reshape(cast(x, BOOL), (x.size,))
    if not count or not rank:
        return constant(0, INT64, out.shape)
    # Written rather than counted, as jax's own does: libtpu takes 14 s over that, and gives megabytes.
    before = lax.cumsum(cast(flat, INT32)) - 1
    row = lax.select(flat, before, constant(count, INT32, flat.shape))
    at = constant(0, INT32, (count,)).at[row].set(lax.iota(INT32, x.size), mode="drop")
    return jnp.stack([cast(place, INT64) for place in jnp.unravel_index(at, x.shape)], 1)


def _padded_nonzero(call: Call) -> Any:
    """How many places there are the run finds out."""
    x = call.arena.plain(call.first)
    flags = cast(call.arena.filled(x, range(x.ndim), 0).array, BOOL)
    call.arena.extents.learn(call.value.shape[0], jnp.sum(flags, dtype=INT32))
    return call.as_it_is(flags)


def _source(source: Any, index: Array, dtype: Any) -> Array:
    if not is_array(source):
        return constant(source, dtype, index.shape)
    if not source.ndim and index.ndim:
        source = lax.reshape(source, (1,) * index.ndim)
    if source.shape == (1,) * index.ndim:
        return jnp.broadcast_to(cast(source, dtype), index.shape)
    return cast(lax.slice(source, (0,) * index.ndim, index.shape), dtype)


def _scatter(write: Callable[[Array, Place, Array], Array]) -> Callable[..., Array]:
    def lower(out: Out, x: Array, dim: int, places: Array, source: Any) -> Array:
        if not places.size:
            return x
        # A 0-d tensor is written as one of rank 1.
        flat = lax.reshape(x, (1,)) if not x.ndim else x
        index = lax.reshape(places, (places.size,)) if flat.ndim == 1 else places
        place = _grid(index.shape, axis_of(dim, flat.ndim), cast(index, INT64))
        return lax.reshape(write(flat, place, _source(source, index, x.dtype)), out.shape)

    return lower


def _set(x: Array, place: Place, source: Array) -> Array:
    return x.at[place].set(source, mode="drop")


def _add(x: Array, place: Place, source: Array) -> Array:
    """Half precision in float32."""
    if x.dtype == BOOL:
        return x.at[place].max(source, mode="drop")
    work = wide(x.dtype)
    return cast(cast(x, work).at[place].add(cast(source, work), mode="drop"), x.dtype)


def _nowhere(call: Call, places: Padded, size: int) -> Padded:
    """Indices that point behind the bucket where they do not count, which the lowerings drop."""
    places = Padded(cast(places.array, INT64), places.axes)
    return call.arena.filled(places, range(places.ndim), size)


def _padded_scatter(call: Call) -> Padded:
    x, dim, places, source = call.args
    x, places = call.arena.plain(x), call.arena.plain(places)
    source = call.arena.plain(source) if isinstance(source, Padded) else source
    size = x.array.shape[axis_of(dim, x.ndim)] if x.ndim else 1
    return Padded(call.as_it_is(x, dim, _nowhere(call, places, size), source), x.axes)


def index_put(
    _: Out, x: Array, places: Sequence[Array | None], values: Array, accumulate: bool = False, *__: Any
) -> Array:
    """At several indices at once."""
    place = _at(places)
    wanted = x.at[place].get(mode="clip").shape
    if 0 in wanted:
        return x
    return (_add if accumulate else _set)(x, place, jnp.broadcast_to(cast(values, x.dtype), wanted))


def _padded_index_put(call: Call) -> Padded:
    x, values = call.arena.plain(call.first), call.arena.plain(call.args[2])
    places = [
        None if one is None else _nowhere(call, one, x.array.shape[axis])
        for axis, one in enumerate(_counted(call, x, call.args[1]))
    ]
    return Padded(call.as_it_is(x, places, values), x.axes)


OPS: Final[dict[Any, Any]] = {
    aten.index_select.default: (
        lambda _, x, dim, places: _taken(x, places.reshape(-1), dim) if x.ndim else x,
        _padded_index_select,
    ),
    aten.embedding.default: (lambda _, x, places, *__, **___: _taken(x, places, 0), _padded_embedding),
    aten.gather.default: (gather, _padded_gather),
    (aten.index.Tensor, aten._unsafe_index.Tensor): (index, _padded_index),
    aten.take.default: (take, _padded_take),
    aten.nonzero.default: (nonzero, _padded_nonzero),
    (aten.scatter.src, aten.scatter.value): (_scatter(_set), _padded_scatter),
    aten.scatter_add.default: (_scatter(_add), _padded_scatter),
    (aten.index_put.default, aten._unsafe_index_put.default): (index_put, _padded_index_put),
}
