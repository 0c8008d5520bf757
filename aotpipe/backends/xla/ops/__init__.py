"""The table of ops: an ATen op to its lowering and its rule for padded values, grouped by file.

A group's `OPS` has a row for each op, or for several together: a lowering, or a lowering and a rule. An op
that torch tags as pointwise needs no rule of its own; any other op without one is refused where padding
reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any

import torch
from torch._ops import OpOverload

from aotpipe.backends.xla.padding.rules import Rule, elementwise


@dataclass(frozen=True, slots=True)
class Op:
    """What is known of an ATen op.

    Attributes:
        lower: `lower(out, *args, **kwargs)`: `out` is the `Out` of the op's result, or a tuple of them.
        pad: Its rule for padded values, if it has one.
    """

    lower: Callable[..., Any]
    pad: Rule | None


@cache
def table() -> Mapping[OpOverload, Op]:
    """Every op that is lowered."""
    entries: dict[OpOverload, Op] = {}
    for group in sorted(module.name for module in iter_modules(__path__, f"{__name__}.")):
        for ops, row in import_module(group).OPS.items():
            lower, rule = row if isinstance(row, tuple) else (row, None)
            for op in (ops,) if isinstance(ops, OpOverload) else ops:
                assert op not in entries, op
                default = elementwise if torch.Tag.pointwise in op.tags else None
                entries[op] = Op(lower, rule or default)
    return MappingProxyType(entries)
