"""Writing at positions that the run computes: what does not count is written nowhere."""

from __future__ import annotations

from typing import Any, Final

import torch
from jax import lax

from aotpipe.backends.xla.padding.layout import Padded
from aotpipe.backends.xla.padding.rules.call import Call, Lowering
from aotpipe.backends.xla.padding.rules.indexing import counted
from aotpipe.backends.xla.values import INT64, axis_of, cast, constant

aten = torch.ops.aten


def _nowhere(call: Call, places: Padded, size: int) -> Padded:
    """Indices that point behind the bucket where they do not count, which the lowerings drop."""
    if not places.padded_axes:
        return places
    array = cast(places.array, INT64)
    counts = call.arena.mask(places, range(places.ndim))
    return Padded(lax.select(counts, array, constant(size, INT64, array.shape)), places.axes)


def scatter(call: Call, lower: Lowering) -> Padded:
    """Replaced or added."""
    x, _, places, source = call.args
    x, places = call.arena.plain(x), call.arena.plain(places)
    source = call.arena.plain(source) if isinstance(source, Padded) else source
    size = x.array.shape[axis_of(call.args[1], x.ndim)] if x.ndim else 1
    return Padded(call.as_it_is(lower, [x, call.args[1], _nowhere(call, places, size), source]), x.axes)


def index_put(call: Call, lower: Lowering) -> Padded:
    """At several indices at once."""
    x, values = call.arena.plain(call.first), call.arena.plain(call.args[2])
    places = [
        None if one is None else _nowhere(call, one, x.array.shape[axis])
        for axis, one in enumerate(counted(call, x, list(call.args[1])))
    ]
    return Padded(call.as_it_is(lower, [x, places, values, *call.args[3:]]), x.axes)


RULES: Final[dict[Any, Any]] = {
    aten.scatter.src: scatter,
    aten.scatter.value: scatter,
    aten.scatter_add.default: scatter,
    aten.index_put.default: index_put,
    aten._unsafe_index_put.default: index_put,
}
