"""Sorting and what comes of it. Sorts are stable, NaN counts as the largest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
from jax import lax

from aotpipe.backends.xla.values import BOOL, INT64, Array, Out, axis_of, cast, constant

aten = torch.ops.aten


def ordered(x: Array, axis: int, *, descending: bool) -> tuple[Array, Array]:
    """The values in order, and where each came from."""
    if not x.ndim:
        return x, constant(0, INT64)
    keys = cast(x, np.dtype(np.int8)) if x.dtype == BOOL else x
    places = lax.broadcasted_iota(INT64, x.shape, axis)
    if descending:
        # What comes last of equals comes first after the reversal of both.
        keys, places = lax.rev(keys, (axis,)), lax.rev(places, (axis,))
    values, places = lax.sort((keys, places), dimension=axis, is_stable=True, num_keys=1)
    if descending:
        values, places = lax.rev(values, (axis,)), lax.rev(places, (axis,))
    return cast(values, x.dtype), places


def sort(_: Sequence[Out], x: Array, dim: int = -1, descending: bool = False) -> tuple[Array, Array]:
    """All in order."""
    return ordered(x, axis_of(dim, x.ndim), descending=descending)


def sort_stable(
    _: Sequence[Out], x: Array, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[Array, Array]:
    """All in order."""
    return ordered(x, axis_of(dim, x.ndim), descending=descending)


def argsort(_: Out, x: Array, dim: int = -1, descending: bool = False) -> Array:
    """Where the values in order came from."""
    return ordered(x, axis_of(dim, x.ndim), descending=descending)[1]


def topk(
    _: Sequence[Out], x: Array, k: int, dim: int = -1, largest: bool = True, is_sorted: bool = True
) -> tuple[Array, Array]:
    """The first of all in order."""
    axis = axis_of(dim, x.ndim)
    values, places = ordered(x, axis, descending=largest)
    if not x.ndim:
        return values, places
    return lax.slice_in_dim(values, 0, k, axis=axis), lax.slice_in_dim(places, 0, k, axis=axis)


OPS: Final[dict[Any, Callable[..., Any]]] = {
    aten.sort.default: sort,
    aten.sort.stable: sort_stable,
    aten.argsort.default: argsort,
    aten.topk.default: topk,
}
