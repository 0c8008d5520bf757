"""Decompositions that every backend needs.

`table()` holds torch's own entries for its core ops with ours in front, grouped by file as ATen's
documentation groups the ops. An entry replaces torch's where no compiler has a lowering for what torch's
gives, or computes it wrong or slowly. A backend puts its own entries in front of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import torch

from aotpipe.canonicalize import recurrent_layers
from aotpipe.passes.decompositions import blas, indexing, norm, ordering, pointwise, resample
from aotpipe.passes.decompositions.entries import Decomposition, Table, joined

__all__ = ["Decomposition", "Table", "of_libraries", "table"]

_GROUPS: Final = (blas, indexing, norm, ordering, pointwise, resample)


@cache
def table() -> Mapping[Any, Callable[..., Any]]:
    """The decompositions for every backend: op -> function of the op's own arguments."""
    core = dict(torch.export.default_decompositions().items())
    # torch's own entries for recurrent layers write out every time step; ours scan over time.
    return core | joined([recurrent_layers.KERNELS, *(group.DECOMPOSITIONS for group in _GROUPS)])


def of_libraries(entries: Mapping[str, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """The entries for those ops, given by name, that a library has registered by now."""
    found: dict[Any, Callable[..., Any]] = {}
    for name, decomposition in entries.items():
        namespace, _, op = name.partition("::")
        op, _, overload = op.partition(".")
        packet = getattr(getattr(torch.ops, namespace), op, None)
        if packet is not None:
            found[getattr(packet, overload or "default")] = decomposition
    return found
