"""The table: an ATen op to its lowering, grouped by file as ATen's documentation groups the ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from torch._ops import OpOverload

Lowering = Callable[..., Any]
"""`lower(out, *args, **kwargs)`: `out` is the `Out` of the op's result, or a tuple of them."""
Table = Mapping[OpOverload, Lowering]

_GROUPS: Final = (
    "binary",
    "blas",
    "creation",
    "fourier",
    "indexing",
    "normalization",
    "ordering",
    "reduction",
    "scan",
    "scatter",
    "shape",
    "unary",
    "windows",
)


@cache
def table() -> Table:
    """Every op that is lowered."""
    entries: dict[OpOverload, Lowering] = {}
    for group in _GROUPS:
        found = import_module(f"{__name__}.{group}").OPS
        assert not entries.keys() & found.keys(), entries.keys() & found.keys()
        entries.update(found)
    return MappingProxyType(entries)
