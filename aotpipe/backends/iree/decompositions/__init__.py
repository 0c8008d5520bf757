"""Decompositions for IREE's torch dialect, grouped by file as ATen's documentation groups the ops.

An entry stands where the compiler has no lowering for an op, computes it wrong, or computes it slowly.
`table()` holds them all, in front of those that every backend needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from aotpipe.backends.iree.decompositions import (
    blas,
    complex_numbers,
    indexing,
    integers,
    pointwise,
    reduction,
    transcendental,
    windows,
)
from aotpipe.passes import decompositions
from aotpipe.passes.decompositions.entries import either, joined


@cache
def table() -> Mapping[Any, Callable[..., Any]]:
    """The decompositions for IREE: op -> function of the op's own arguments."""
    groups = (blas, indexing, integers, pointwise, reduction, transcendental, windows)
    entries = {**decompositions.table(), **joined(group.DECOMPOSITIONS for group in groups)}
    for firsts in (integers.OF_BYTES, complex_numbers.OF_COMPLEX):
        entries |= {op: either(first, entries.get(op)) for op, first in firsts.items()}
    return entries
