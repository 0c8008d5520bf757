"""Sorting: what does not count sorts last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from jax import lax

from aotpipe.backends.xla.ops.ordering import ordered
from aotpipe.backends.xla.ops.reduction import edge
from aotpipe.backends.xla.padding.layout import Padded, plain
from aotpipe.backends.xla.padding.rules.call import Call, Lowering, bucket_number
from aotpipe.backends.xla.values import axis_of, is_float

aten = torch.ops.aten


def _in_order(call: Call, dim: int, *, descending: bool) -> list[Padded]:
    x = call.first
    if not x.ndim:
        return [Padded(each, ()) for each in ordered(x.array, 0, descending=descending)]
    axis = axis_of(dim, x.ndim)
    x = call.arena.plain(x, (axis,))
    last = edge(x.array.dtype, largest=not descending)
    if not descending and is_float(x.array.dtype):
        last = np.nan
    array = call.arena.filled(x, (axis,), last)
    assert plain(x.axes[axis])
    return [Padded(each, x.axes) for each in ordered(array, axis, descending=descending)]


def _sort(call: Call, _: Lowering) -> list[Padded]:
    return _in_order(call, call.get(1, "dim", -1), descending=call.get(2, "descending", False))


def _sort_stable(call: Call, _: Lowering) -> list[Padded]:
    return _in_order(call, call.kwargs.get("dim", -1), descending=call.kwargs.get("descending", False))


def _argsort(call: Call, _: Lowering) -> Padded:
    return _in_order(call, call.get(1, "dim", -1), descending=call.get(2, "descending", False))[1]


def _topk(call: Call, _: Lowering) -> list[Padded]:
    found = _in_order(call, call.get(2, "dim", -1), descending=call.get(3, "largest", True))
    if not call.first.ndim:
        return found
    axis = axis_of(call.get(2, "dim", -1), call.first.ndim)
    k = bucket_number(call.args[1])
    own = call.arena.axes(call.value[0])[axis]
    return [
        call.arena.with_axis(each, axis, own, lax.slice_in_dim(each.array, 0, k, axis=axis)) for each in found
    ]


RULES: Final[dict[Any, Callable[..., Any]]] = {
    aten.sort.default: _sort,
    aten.sort.stable: _sort_stable,
    aten.argsort.default: _argsort,
    aten.topk.default: _topk,
}
