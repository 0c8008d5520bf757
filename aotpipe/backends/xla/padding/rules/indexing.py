"""Reading at positions that the run computes: negative ones count from the true end."""

from __future__ import annotations

from typing import Any, Final

import jax.numpy as jnp
import sympy
import torch

from aotpipe.backends.xla.padding.layout import Padded, padded
from aotpipe.backends.xla.padding.rules.call import Call, Lowering, array_of
from aotpipe.backends.xla.values import BOOL, INT32, INT64, axis_of, cast

aten = torch.ops.aten


def index_select(call: Call, lower: Lowering) -> Padded:
    """Slices of a dim."""
    x, _, places = call.args
    axis = axis_of(call.args[1], x.ndim)
    x = call.arena.plain(x, (axis,))
    if not x.ndim:
        return Padded(call.as_it_is(lower), ())
    places = places if places.ndim else call.arena.reshape(places, [sympy.Integer(1)])
    axes = (*x.axes[:axis], places.axes[0], *x.axes[axis + 1 :])
    return Padded(call.as_it_is(lower, [x, axis, places]), axes)


def embedding(call: Call, lower: Lowering) -> Padded:
    """Rows."""
    weight, places = call.arena.plain(call.args[0], (0,)), call.args[1]
    return Padded(call.as_it_is(lower, [weight, places]), (*places.axes, *weight.axes[1:]))


def gather(call: Call, lower: Lowering) -> Padded:
    """Along a dim, each element where its index says."""
    x, places = call.arena.plain(call.args[0]), call.arena.plain(call.args[2])
    return Padded(call.as_it_is(lower, [x, call.args[1], places]), places.axes)


def counted(call: Call, x: Padded, places: list[Any]) -> list[Any]:
    """Indices of several dims, none negative along one that is padded."""
    found: list[Any] = []
    for axis, one in enumerate(places):
        if one is not None:
            one = call.arena.plain(one)
            if padded(x.axes[axis]):
                index = cast(one.array, INT64)
                true = cast(array_of(call.arena.true(x.axes[axis])), INT64)
                one = Padded(jnp.where(index < 0, index + true, index), one.axes)
        found.append(one)
    return found


def index(call: Call, lower: Lowering) -> Padded:
    """At several indices at once."""
    x = call.arena.plain(call.first)
    places = counted(call, x, list(call.args[1]))
    return Padded(call.as_it_is(lower, [x, places]), call.arena.axes(call.value))


def take(call: Call, lower: Lowering) -> Padded:
    """Of the flat tensor."""
    size = sympy.expand(sympy.Mul(*(factor for axis in call.first.axes for factor in axis)))
    x = call.arena.plain(call.arena.reshape(call.first, [size]))
    (places,) = counted(call, x, [call.args[1]])
    return Padded(call.as_it_is(lower, [x, places]), places.axes)


def nonzero(call: Call, lower: Lowering) -> Padded:
    """Where it is not zero: how many places there are the run finds out."""
    x = call.arena.plain(call.first)
    flags = cast(call.arena.filled(x, range(x.ndim), 0), BOOL)
    call.arena.extents.learn(call.value.shape[0], jnp.sum(flags, dtype=INT32))
    return Padded(call.as_it_is(lower, [flags]), call.arena.axes(call.value))


RULES: Final[dict[Any, Any]] = {
    aten.index_select.default: index_select,
    aten.embedding.default: embedding,
    aten.gather.default: gather,
    aten.index.Tensor: index,
    aten._unsafe_index.Tensor: index,
    aten.take.default: take,
    aten.nonzero.default: nonzero,
}
