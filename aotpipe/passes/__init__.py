"""From torch.export's programs to pure functions over a small closed set of ops.

`legalize(exported, rules)` takes an `Exported` and gives a `Legal`; what it promises is in
`stages.LegalEntry`, and `verify` checks it on every entry. The exported programs are left as
they were. What differs between backends is in the `LegalizationRules` that a backend gives: the passes know
no backend.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import torch

from aotpipe.core.stages import Exported, Legal, LegalEntry
from aotpipe.passes import (
    constants,
    control_flow,
    decompose,
    hops,
    if_conversion,
    index_bounds,
    integer_division,
    runtime_asserts,
    scalars,
)
from aotpipe.passes.flatten import Tensors, flatten, written_state
from aotpipe.passes.rules import LegalizationRules, check_supported
from aotpipe.passes.verify import verify

__all__ = ["legalize"]


def legalize(
    exported: Exported, rules: LegalizationRules, *, cheap: int = if_conversion.CHEAP, supported: bool = True
) -> Legal:
    """Turn every entry point into a pure function over a backend's ops.

    Both branches of a `cond` may compute `cheap` elements for it to become a selection. Where not
    `supported`, ops without a lowering are left in the graphs.

    Raises:
        UnsupportedOps: Ops without a lowering; all of them are named, each with the user's line.
        LowerFailed: A fault of aotpipe.
    """
    programs = constants.fold((decompose.decompose(entry, rules) for entry in exported.entries), rules)
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
            rules,
            cheap,
        )
        for entry, program in zip(exported.entries, programs, strict=True)
    ]
    for one in legal:
        for run in rules.entry_passes:
            run(one)
    if supported:
        check_supported(legal, rules)
    used = dict.fromkeys(key for one in legal for key in one.weights)
    weights = {key: tensors.by_name[key] for key in used}
    # The model's own buffers change when it is run; the initial state must not.
    state = {key: tensors.by_name[key].clone() for key in written}
    for one in legal:
        verify(one, weights, state)
    return Legal(
        name=exported.canonical.spec.name,
        dialect=rules.dialect,
        entries=tuple(legal),
        weights=weights,
        initial_state=state,
    )


def _finish(
    entry: LegalEntry,
    tensors: Mapping[str, torch.Tensor],
    declared: Collection[str],
    rules: LegalizationRules,
    cheap: int,
) -> LegalEntry:
    """Control flow in normal form, indices within bounds, asserts as outputs, nothing unused."""
    integer_division.guard_numbers(entry.graph)
    scalars.lower(entry.graph)
    control_flow.normalize(entry.graph)
    entry, ranges = index_bounds.guard(entry, tensors, declared)
    for run in rules.range_passes:
        for module in list(hops.walk(entry.graph)):
            if run(module, ranges):
                module.recompile()
    entry = runtime_asserts.raise_up(entry, ranges.always)
    if_conversion.convert(entry.graph, cheap)
    weights = dict(zip(entry.weights, hops.placeholders(entry.graph), strict=False))
    for node in weights.values():
        if not node.users:
            entry.graph.graph.erase_node(node)
    entry.graph.recompile()
    return replace(entry, weights=tuple(key for key, node in weights.items() if node.users))
