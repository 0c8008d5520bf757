"""From what torch.export gives to the ops that a dialect lowers.

`table(dialect)` goes to `ExportedProgram.run_decompositions`: torch's own table for its core ops, with our
entries in front, grouped by file as ATen's documentation groups the ops. An entry replaces torch's where the
compiler has no lowering for what torch's gives, computes it wrong, or computes it slowly.
`unsupported(graph_module)` finds what is left without a lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

import torch

from aotpipe.core.stages import Dialect
from aotpipe.passes.decompositions import experts, quantization, stablehlo
from aotpipe.passes.decompositions.entries import Decomposition, Table, either
from aotpipe.passes.unsupported import Unsupported, unsupported

__all__ = ["Decomposition", "Table", "Unsupported", "table", "unsupported"]

_GROUPS: Final = (
    "aotpipe.passes.decompositions.attention",
    "aotpipe.backends.iree.decompositions.bitwise",
    "aotpipe.passes.decompositions.blas",
    "aotpipe.backends.iree.decompositions.complex",
    "aotpipe.passes.decompositions.copies",
    "aotpipe.passes.decompositions.distances",
    "aotpipe.passes.decompositions.experts",
    "aotpipe.backends.iree.decompositions.fourier",
    "aotpipe.passes.decompositions.indexing",
    "aotpipe.passes.decompositions.adaptive_max_pool",
    "aotpipe.passes.decompositions.norm",
    "aotpipe.passes.decompositions.ordering",
    "aotpipe.backends.iree.decompositions.padding",
    "aotpipe.backends.iree.decompositions.scatter_gather",
    "aotpipe.backends.iree.decompositions.pointwise",
    "aotpipe.backends.iree.decompositions.powers",
    "aotpipe.passes.decompositions.quantization",
    "aotpipe.passes.decompositions.recurrent",
    "aotpipe.backends.iree.decompositions.reduction",
    "aotpipe.passes.decompositions.resample",
    "aotpipe.backends.iree.decompositions.scan",
    "aotpipe.passes.decompositions.shape",
    "aotpipe.backends.iree.decompositions.special",
    "aotpipe.backends.iree.decompositions.transcendental",
    "aotpipe.backends.iree.decompositions.trigonometry",
    "aotpipe.backends.iree.decompositions.windows",
)


def table(dialect: Dialect) -> Mapping[Any, Callable[..., Any]]:
    """The decompositions for a dialect: op -> function of the op's own arguments."""
    # IREE's importer has an integer product for those of the quantizer.
    more = quantization.LIBRARIES if dialect == "stablehlo" else {}
    return MappingProxyType({**_fixed(dialect), **_registered({**experts.LIBRARIES, **more})})


@cache
def _fixed(dialect: Dialect) -> Mapping[Any, Callable[..., Any]]:
    entries: dict[Any, Callable[..., Any]] = dict(torch.export.default_decompositions().items())
    for group in _GROUPS:
        entries.update(import_module(group).DECOMPOSITIONS)
    unsigned = import_module("aotpipe.backends.iree.decompositions.unsigned").DECOMPOSITIONS
    entries |= {op: either(first, entries.get(op)) for op, first in unsigned.items()}
    if dialect == "stablehlo":
        return {op: decomposition for op, decomposition in entries.items() if op not in stablehlo.OPS}
    return entries


def _registered(entries: Mapping[str, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """The entries for ops that a library has registered by now."""
    found: dict[Any, Callable[..., Any]] = {}
    for name, decomposition in entries.items():
        namespace, _, op = name.partition("::")
        op, _, overload = op.partition(".")
        packet = getattr(getattr(torch.ops, namespace), op, None)
        if packet is not None:
            found[getattr(packet, overload or "default")] = decomposition
    return found
