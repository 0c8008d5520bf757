"""Compares an exported program with eager on calls that differ: what was baked in without a word shows here.

`disagreement(entry, program)` makes the same calls of both, one after another, so that state takes part: the
example, its numbers turned around, scaled and moved. Gives a `Diagnostic` for the first call with another
answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import torch

from aotpipe.canonicalize import example_call
from aotpipe.canonicalize.eager_hops import uncompiled
from aotpipe.canonicalize.inputs import pytrees
from aotpipe.core.stages import CanonicalEntry, ExportedEntry
from aotpipe.model import source
from aotpipe.tools.check.diagnostics import Diagnostic
from aotpipe.tools.check.eager_runs import Observed

# A program that was traced runs eager's own kernels: another answer is not a matter of rounding.
_RELATIVE: Final = 1e-3
_ABSOLUTE: Final = 1e-4


def is_worth_it(entry: CanonicalEntry, observed: Observed) -> bool:
    """Whether anything could be baked in: Python looked into a tensor, or the model keeps something."""
    looked = any(event.node.varies for event in observed.events.values())
    drawn = any(effect.kind in ("chance", "clock") for effect in observed.effects.values())
    return (looked or entry.state is not None) and not drawn


def disagreement(entry: CanonicalEntry, program: ExportedEntry) -> Diagnostic | None:
    """The first call on which the program answers otherwise than eager; None where all agree."""
    calls = list(calls_of(entry))
    wanted = answers(entry.module, entry, [leaf for _, leaf in calls])
    module = program.program.module()
    with example_call.unchanged(entry.module):
        got = answers(module, entry, [leaf for _, leaf in calls[: len(wanted)]])
    for number, ((how, _), want) in enumerate(zip(calls, wanted, strict=False)):
        other = got[number] if number < len(got) else None
        said = "raises" if other is None else difference(entry, want, other)
        if not said:
            continue
        if not _is_steady(entry, calls[number][1]):
            return None
        return Diagnostic.of(
            code="differs-from-eager",
            message=f"the exported program {said} in call {number + 1}, {how}",
            reason="torch.export fixed something that eager computes in each call",
            hint="look at the warnings, and at numbers, texts and keys that are taken out of tensors",
            where=source.of_definition(entry.module.forward),
            seen=True,
            entry_point=entry.name,
        )
    return None


def calls_of(entry: CanonicalEntry) -> Iterator[tuple[str, Callable[[torch.Tensor], torch.Tensor]]]:
    """How each call's tensors come of the example's, in words and as a function."""
    yield "the example", torch.Tensor.clone
    yield "the example again", torch.Tensor.clone
    yield "with its numbers turned around", _turned
    yield "with its numbers a tenth", lambda leaf: leaf * 0.1 if leaf.is_floating_point() else leaf.clone()
    if not entry.entry.value_ranges:
        yield (
            "with its numbers moved",
            lambda leaf: leaf * 3 + 1 if leaf.is_floating_point() else leaf.clone(),
        )


def _turned(leaf: torch.Tensor) -> torch.Tensor:
    if leaf.is_floating_point():
        return -leaf
    return leaf.flip(0) if leaf.dim() else leaf.clone()


def answers(
    module: torch.nn.Module,
    entry: CanonicalEntry,
    changes: list[Callable[[torch.Tensor], torch.Tensor]],
    seed: int = 0,
) -> list[list[Any]]:
    """The answers to calls one after another, as far as none raises."""
    found: list[list[Any]] = []
    with example_call.unchanged(module), torch.random.fork_rng(devices=[]), torch.no_grad(), uncompiled():
        torch.manual_seed(seed)
        for change in changes:
            given = pytrees.clone_tensors((entry.entry.args, dict(entry.entry.kwargs)))
            args, kwargs = pytrees.map_leaves(partial(_changed, change), given)
            try:
                result = module(*args, **kwargs)
            except Exception:  # noqa: BLE001  # a call that the model refuses compares nothing
                return found
            # A later call may write into a result.
            found.append([pytrees.clone_tensors(leaf) for _, leaf in pytrees.leaves(result)])
    return found


def _changed(change: Callable[[torch.Tensor], torch.Tensor], leaf: Any) -> Any:
    return change(leaf) if isinstance(leaf, torch.Tensor) else leaf


def difference(entry: CanonicalEntry, want: list[Any], got: list[Any], relative: float = _RELATIVE) -> str:
    """What of a result is another than was wanted; empty where nothing is."""
    if len(want) != len(got):
        return f"gives {len(got)} results for {len(want)}"
    for name, mine, other in zip(entry.output_names, want, got, strict=True):
        if not isinstance(mine, torch.Tensor | bool | int | float):
            continue
        ours, theirs = torch.as_tensor(mine), torch.as_tensor(other)
        if ours.shape != theirs.shape:
            return f"gives {name!r} the shape {tuple(theirs.shape)} for {tuple(ours.shape)}"
        is_inexact = ours.is_floating_point() or ours.is_complex()
        rtol, atol = (relative, _ABSOLUTE) if is_inexact else (0.0, 0.0)
        kind = torch.complex128 if ours.is_complex() else torch.float64
        if not torch.allclose(theirs.to(kind), ours.to(kind), rtol=rtol, atol=atol, equal_nan=True):
            return f"gives another {name!r}"
    return ""


def _is_steady(entry: CanonicalEntry, change: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """Whether eager gives itself the same answer with other random numbers."""
    first, second = (answers(entry.module, entry, [change], seed) for seed in (0, 1))
    return bool(first and second) and not difference(entry, first[0], second[0])
