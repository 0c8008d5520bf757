"""Decompositions for IREE's torch dialect, grouped by file as ATen's documentation groups the ops.

An entry stands where the compiler has no lowering for an op, computes it wrong, or computes it slowly.
`table()` holds them all, in front of those that every backend needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from aotpipe.backends.iree.decompositions import (
    bitwise,
    blas,
    complex_numbers,
    fourier,
    indexing,
    ordering,
    padding,
    pointwise,
    powers,
    reduction,
    scan,
    scatter_gather,
    shape,
    special,
    transcendental,
    trigonometry,
    unsigned,
    windows,
)
from aotpipe.passes import decompositions
from aotpipe.passes.decompositions.entries import either, joined

_GROUPS: Final = (
    bitwise,
    blas,
    complex_numbers,
    fourier,
    indexing,
    ordering,
    padding,
    pointwise,
    powers,
    reduction,
    scan,
    scatter_gather,
    shape,
    special,
    transcendental,
    trigonometry,
    windows,
)


@cache
def table() -> Mapping[Any, Callable[..., Any]]:
    """The decompositions for IREE: op -> function of the op's own arguments."""
    entries = {**decompositions.table(), **joined(group.DECOMPOSITIONS for group in _GROUPS)}
    return entries | {op: either(first, entries.get(op)) for op, first in unsigned.DECOMPOSITIONS.items()}
