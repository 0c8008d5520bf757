"""What a backend asks of legalization.

Each backend has a module `legalization` that gives its `LegalizationRules`; `aotpipe.backends.legalization`
chooses among them. The passes of this package are told by the record what to do for a backend, and know none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from aotpipe.core.stages import Dialect, LegalEntry
from aotpipe.passes.ranges import Ranges


def _no_reason(_: Any) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LegalizationRules:
    """How programs are made legal for one dialect of a backend, on one class of devices.

    Attributes:
        dialect: What the legal program is lowered to.
        decompositions: Gives the table for `ExportedProgram.run_decompositions`; a function, since a library
            may register ops at any time.
        refusal: Why the backend cannot lower a node that calls an ATen op on tensors; empty where it can.
        size_refusal: The same for a Python function of sizes.
        needs_bounded_sizes: Whether each size that only a run knows needs an upper bound.
        program_passes: Run on each program after its decomposition, in this order.
        range_passes: Run on each entry point once the ranges of its values are known.
        graph_passes: Run on each legal graph in the end.
    """

    dialect: Dialect
    decompositions: Callable[[], Mapping[Any, Callable[..., Any]]]
    refusal: Callable[[Node], str]
    size_refusal: Callable[[Any], str] = _no_reason
    needs_bounded_sizes: bool = False
    program_passes: tuple[Callable[[ExportedProgram], ExportedProgram], ...] = ()
    range_passes: tuple[Callable[[LegalEntry, Ranges], None], ...] = ()
    graph_passes: tuple[Callable[[GraphModule], None], ...] = ()
