"""The table: an ATen op to its rule for padded values; the groups are much as in `backends/xla/ops`.

A rule takes a `Call` and the op's own lowering, and gives arrays with plain axes, or `Padded` values. What it
gives must be right wherever it counts, whatever lies in the padding of the operands: NaN, infinities,
indices that point nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

import torch
from torch._ops import OpOverload

from aotpipe.backends.xla.padding.rules.call import Call

__all__ = ["Call", "Rule", "rule", "table"]

Rule = Callable[[Call, Any], Any]
_GROUPS: Final = (
    "blas",
    "borders",
    "creation",
    "elements",
    "indexing",
    "ordering",
    "reduction",
    "scatter",
    "shape",
    "windows",
)


@cache
def table() -> Mapping[OpOverload, Rule]:
    """Every op with a rule of its own; those that work element by element need none."""
    entries: dict[OpOverload, Rule] = {}
    for group in _GROUPS:
        found = import_module(f"{__name__}.{group}").RULES
        assert not entries.keys() & found.keys(), entries.keys() & found.keys()
        entries.update(found)
    return MappingProxyType(entries)


def rule(target: Any) -> Rule | None:
    """The rule of an op; None where there is none."""
    found = table().get(target)
    if found is None and isinstance(target, OpOverload) and torch.Tag.pointwise in target.tags:
        from aotpipe.backends.xla.padding.rules.elements import elementwise

        return elementwise
    return found
