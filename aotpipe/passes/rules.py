"""What a backend asks of legalization, and what it cannot lower.

Each backend has a module `legalization` that gives its `LegalizationRules`; `aotpipe.backends.legalization`
chooses among them. The passes of this package are told by the record what to do for a backend, and know none.
`check_supported(entries, rules)` raises `UnsupportedOps` that names every op at once, before any compiler
runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from aotpipe.core.stages import Dialect, LegalEntry
from aotpipe.errors import SourceLine, UnsupportedOp, UnsupportedOps
from aotpipe.passes import (
    complex_parts,
    hops,
    integer_division,
    ops,
    shifts,
    size_rewrites,
    split_reductions,
    strided_reads,
    unbacked,
)
from aotpipe.passes.decompositions import linalg
from aotpipe.passes.ranges import Ranges
from aotpipe.passes.source_lines import source_line


@dataclass(frozen=True, slots=True, kw_only=True)
class LegalizationRules:
    """How programs are made legal for one dialect of a backend, on one class of devices.

    Attributes:
        dialect: What the legal program is lowered to.
        decompositions: Gives the table for `ExportedProgram.run_decompositions`; a function, since a library
            may register ops at any time.
        refusal: Why the backend cannot lower a node that calls an ATen op on tensors; empty where it can.
        size_refusal: The same for a Python function of sizes.
        folds: Whether a node is to be computed at build time where no input leads to it, though there is a
            lowering.
        needs_bounded_sizes: Whether each size that only a run knows needs an upper bound.
        program_passes: Run in this order on each graph of a program, bodies of control flow too, after its
            decomposition; each tells whether it changed the graph.
        range_passes: Run in this order on each graph of an entry point once the ranges of its values are
            known; each tells whether it changed the graph.
        entry_passes: Run on each legal entry point in the end.
    """

    dialect: Dialect
    decompositions: Callable[[], Mapping[Any, Callable[..., Any]]]
    refusal: Callable[[Node], str]
    size_refusal: Callable[[Any], str] = lambda _: ""
    folds: Callable[[Node], bool] = lambda _: False
    needs_bounded_sizes: bool = False
    program_passes: tuple[Callable[[GraphModule], bool], ...] = (
        strided_reads.gather,
        complex_parts.split,
        size_rewrites.bound_sizes,
        size_rewrites.count_strides,
        size_rewrites.slice_splits,
        split_reductions.split,
        size_rewrites.fill_empty,
    )
    range_passes: tuple[Callable[[GraphModule, Ranges], bool], ...] = (integer_division.mend, shifts.guard)
    entry_passes: tuple[Callable[[LegalEntry], None], ...] = ()


NO_LOWERING: Final = "has no lowering"
_RANDOM: Final = (
    "draws random numbers from torch's generator: build with --random state or --random input, which let "
    "most functions draw from one of the program; or pass them, or drop the op in eval mode"
)
_DATA_SIZES: Final = (
    "the size of its result depends on data and has no bound, and an XLA program has fixed sizes; use a "
    "mask, or declare a bound: torch._check(n <= ...), or aotpipe.capacity(n, max=...)"
)
_FACTORS: Final = "factors a matrix as LAPACK does, which has no lowering; do it before the exported part"
_COMPLEX: Final = "has a lowering for real matrices alone, with pivoting; do it before the exported part"
_STRIDED: Final = (
    "reads by strides what its operand does not hold, an input that is not contiguous in the example, or by "
    "sizes or strides that are not known"
)
_TRANSFORM: Final = "has no lowering for a dynamic or prime size beyond 4096, or in float64"

REASONS: Final[Mapping[ops.OpOverload, str]] = {
    **dict.fromkeys(
        ops.overloads(
            "_linalg_eigh _linalg_svd linalg_eig linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq "
            "linalg_pinv.atol_rtol_tensor"
        ),
        _FACTORS,
    ),
    **dict.fromkeys(linalg.DECOMPOSITIONS, _COMPLEX),
    **dict.fromkeys(ops.overloads("as_strided"), _STRIDED),
    **dict.fromkeys(ops.overloads("_fft_c2c _fft_c2r _fft_r2c"), _TRANSFORM),
}
"""Why no backend lowers these ops, where more is to be said than that it does not."""


def check_supported(entries: Sequence[LegalEntry], rules: LegalizationRules) -> None:
    """Refuse what the backend has no lowering for.

    Raises:
        UnsupportedOps: With each op's name, how often it is met, and the user's first line with it.
    """
    left = [found for entry in entries for found in unsupported(entry.graph, rules)]
    if left:
        raise error_of(
            left, hint="write the named lines with other ops, or let them run in Python: --allow-islands"
        )


def error_of(left: Sequence[UnsupportedOp], *, hint: str) -> UnsupportedOps:
    """The error that names some ops without a lowering."""
    names = sorted({found.name for found in left})
    total = sum(found.count for found in left)
    return UnsupportedOps(
        f"{len(names)} {'op has' if len(names) == 1 else 'ops have'} no lowering ({total} in all): "
        + ", ".join(names),
        reason="\n".join(map(_row, left)),
        hint=hint,
        where=next((found.where for found in left if found.where), None),
        ops=tuple(left),
    )


def _row(found: UnsupportedOp) -> str:
    calls = f"{found.count} {'call' if found.count == 1 else 'calls'}"
    place = f", first at {found.where}" if found.where else ""
    return f"{found.name}: {found.reason}; {calls}{place}"


def unsupported(module: GraphModule, rules: LegalizationRules) -> tuple[UnsupportedOp, ...]:
    """All ops of a graph and its subgraphs that cannot be lowered, one row an op and reason, by name."""
    sizes = unbacked.sizes(module) if rules.needs_bounded_sizes else {}
    told = {symbol for symbol, size in sizes.items() if size.most is not None}

    def why(node: Node) -> str:
        # What goes on with such a size is refused for it too, and says nothing new.
        unbounded = unbacked.used_by(node) - told if rules.needs_bounded_sizes else set()
        told.update(unbounded)
        return refusal(node, rules) or (_DATA_SIZES if unbounded else "")

    return counted(
        (str(node.target), reason, source_line(node))
        for graph in hops.walk(module)
        for node in graph.graph.nodes
        if node.op == "call_function" and (reason := why(node))
    )


def counted(calls: Iterable[tuple[str, str, SourceLine | None]]) -> tuple[UnsupportedOp, ...]:
    """Calls without a lowering, by name, reason and line, as one row an op and reason."""
    found: dict[tuple[str, str], list[SourceLine | None]] = {}
    for name, reason, where in calls:
        found.setdefault((name, reason), []).append(where)
    return tuple(
        UnsupportedOp(name, reason, len(lines), next(filter(None, lines), None))
        for (name, reason), lines in sorted(found.items(), key=lambda item: item[0])
    )


def refusal(node: Node, rules: LegalizationRules) -> str:
    """Why a node of a program cannot be lowered; empty where it can."""
    if isinstance(node.target, ops.HigherOrderOperator):
        return "" if node.target in hops.LAYOUTS else f"{NO_LOWERING}: an unknown higher-order op"
    if not isinstance(node.target, ops.OpOverload):
        return rules.size_refusal(node.target)
    if node.target.namespace == "aotpipe":
        return ""  # an island, at which the graph is cut
    if next(ops.tensors(node), None) is None:
        # The sizes of a tensor, which each backend takes as they are.
        return ""
    if torch.Tag.nondeterministic_seeded in node.target.tags:
        return _RANDOM
    return rules.refusal(node)
