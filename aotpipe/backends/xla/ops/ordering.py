"""Sorting and what comes of it. Sorts are stable, NaN counts as the largest, and padding sorts last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from jax import lax

from aotpipe.backends.xla.ops.reduction import edge
from aotpipe.backends.xla.padding.rules import Call, Rule, along, bucket_number
from aotpipe.backends.xla.values import BOOL, INT64, Array, Out, axis_of, cast, constant, is_float

aten = torch.ops.aten


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
    (aten.sort.default, aten.sort.stable): (sort, _SORT),
    aten.argsort.default: (lambda *args, **named: sort(*args, **named)[1], _SORT),
    aten.topk.default: (topk, _padded_topk),
}
