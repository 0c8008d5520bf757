"""From torch.export's programs to pure functions over a small closed set of ops.

`legalize(exported, dialect)` takes an `Exported` and gives a `Legal`; what it promises is in
`stages.LegalEntry`, and `verify` checks it on every entry. The exported programs are left as they were.

Raises `UnsupportedOps` with every op that the dialect lacks, before any compiler runs, and `LowerFailed`
for a fault of aotpipe's own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import torch

from aotpipe.core.stages import Dialect, Exported, Legal, LegalEntry
from aotpipe.passes import (
    constant_folding,
    control_flow,
    decompose,
    float_to_int,
    if_conversion,
    index_bounds,
    integer_division,
    join_gathers,
    runtime_asserts,
    scalars,
)
from aotpipe.passes.flatten import Tensors, flatten, written_state
from aotpipe.passes.verify import verify

__all__ = ["legalize"]


def legalize(
    exported: Exported,
    dialect: Dialect = "torch",
    *,
    cheap: int = if_conversion.CHEAP,
    supported: bool = True,
) -> Legal:
    """Turn every entry point into a pure function over the ops of a dialect.

    Args:
        exported: The model.
        dialect: Of the compiler.
        cheap: How many elements both branches of a `cond` may compute for it to become a selection.
        supported: Refuse ops without a lowering; they are left in the graphs otherwise.

    Raises:
        UnsupportedOps: Ops without a lowering; all of them are named, each with the user's line.
        LowerFailed: A fault of aotpipe.
    """
    programs = constant_folding.fold(
        (decompose.decompose(entry, dialect) for entry in exported.entries), dialect
    )
    tensors = Tensors()
    written: dict[str, None] = {}
    for entry, program in zip(exported.entries, programs, strict=True):
        written.update(dict.fromkeys(written_state(program, tensors, entry.name)))
    canonical = {entry.name: entry for entry in exported.canonical.entries}
    legal = [
        _finish(
            flatten(entry, program, canonical[entry.name].input_names, tensors, written),
            tensors.by_name,
            canonical[entry.name].entry.value_ranges,
            cheap,
        )
        for entry, program in zip(exported.entries, programs, strict=True)
    ]
    if dialect == "torch":
        for one in legal:
            float_to_int.truncate(one.graph)
    if supported:
        decompose.check_supported(legal, dialect)
    used = dict.fromkeys(key for one in legal for key in one.weights)
    weights = {key: tensors.by_name[key] for key in used}
    # The model's own buffers change when it is run; the initial state must not.
    state = {key: tensors.by_name[key].clone() for key in written}
    for one in legal:
        verify(one, weights, state)
    return Legal(
        name=exported.canonical.spec.name,
        dialect=dialect,
        entries=tuple(legal),
        weights=weights,
        initial_state=state,
    )


def _finish(
    entry: LegalEntry, tensors: Mapping[str, torch.Tensor], declared: Collection[str], cheap: int
) -> LegalEntry:
    """Control flow in normal form, indices within bounds, asserts as outputs, nothing unused."""
    scalars.lower(entry.graph)
    control_flow.normalize(entry.graph)
    entry, ranges = index_bounds.guard(entry, tensors, declared)
    integer_division.mend(entry, ranges)
    join_gathers.join(entry.graph)
    entry = runtime_asserts.raise_up(entry, ranges.always)
    if_conversion.convert(entry.graph, cheap)
    return _without_unused_weights(entry)


def _without_unused_weights(entry: LegalEntry) -> LegalEntry:
    nodes = entry.graph.graph.find_nodes(op="placeholder")
    kept = []
    for key, node in zip(entry.weights, nodes, strict=False):
        if node.users:
            kept.append(key)
        else:
            entry.graph.graph.erase_node(node)
    entry.graph.recompile()
    return replace(entry, weights=tuple(kept))
