"""Ops that put something around: it stands behind what counts, not behind the padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax.numpy as jnp
import sympy
import torch
from jax import lax

from aotpipe.backends.xla.padding.layout import Padded
from aotpipe.backends.xla.padding.rules.call import Call, Lowering, array_of, bare
from aotpipe.backends.xla.padding.rules.shape import places_of, taken
from aotpipe.backends.xla.values import cast, constant

aten = torch.ops.aten


def constant_pad(call: Call, lower: Lowering) -> Padded:
    """More on the sides: behind what counts."""
    x, pad = call.first, call.args[1]
    value = bare(call.get(2, "value", 0))
    for place in range(len(pad) // 2):
        axis = x.ndim - 1 - place
        before, after = pad[2 * place], pad[2 * place + 1]
        if not x.is_padded(axis) and isinstance(before, int) and isinstance(after, int):
            pairs = [(0, 0, 0)] * x.ndim
            pairs[axis] = (before, after, 0)
            array = lax.pad(x.array, cast(value, x.array.dtype), pairs)
            x = call.arena.with_axis(x, axis, (sympy.Integer(array.shape[axis]),), array)
            continue
        x = call.arena.plain(x, (axis,))
        places = places_of(call.out.shape[axis]) - array_of(before)
        flags = (places >= 0) & (places < array_of(call.arena.true(x.axes[axis])))
        if x.array.shape[axis]:
            array = jnp.take(x.array, places, axis=axis, mode="clip")
        else:
            array = constant(
                0,
                x.array.dtype,
                [call.out.shape[axis] if at == axis else size for at, size in enumerate(x.array.shape)],
            )
        fill = lax.broadcast(cast(value, array.dtype), array.shape)
        array = lax.select(lax.broadcast_in_dim(flags, array.shape, (axis,)), array, fill)
        x = call.arena.with_axis(x, axis, call.arena.axes(call.value)[axis], array)
    return x


def _edge_pad(mode: str) -> Callable[[Call, Lowering], Padded]:
    """As the elements at the true edges are."""

    def lowered(call: Call, _: Lowering) -> Padded:
        x, pad = call.first, call.args[1]
        for place in range(len(pad) // 2):
            axis = x.ndim - 1 - place
            x = call.arena.plain(x, (axis,))
            last = array_of(call.arena.true(x.axes[axis])) - 1
            steps = places_of(call.out.shape[axis]) - array_of(pad[2 * place])
            if mode == "reflect":
                steps = last - jnp.abs(last - jnp.abs(steps))
            x = taken(call, x, axis, jnp.clip(steps, 0, jnp.maximum(last, 0)))
        return x

    return lowered


RULES: Final[dict[Any, Any]] = {
    aten.constant_pad_nd.default: constant_pad,
    aten.reflection_pad1d.default: _edge_pad("reflect"),
    aten.reflection_pad2d.default: _edge_pad("reflect"),
    aten.reflection_pad3d.default: _edge_pad("reflect"),
    aten.replication_pad1d.default: _edge_pad("edge"),
    aten.replication_pad2d.default: _edge_pad("edge"),
    aten.replication_pad3d.default: _edge_pad("edge"),
}
