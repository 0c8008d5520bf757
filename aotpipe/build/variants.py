"""Programs of a target for CPUs that have more than it asks for: one bundle, fast on every level of x86-64.

A target's row names them (`Target.variants`). They are compiled, run and compared as any program, each on
its own, and `joined` puts them into their targets' results. Only what was executed here at parity is kept:
nothing that was never run is loaded for a target that says `executed`. Its own program is there in any case.
Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aotpipe.build.matrix import Result
from aotpipe.core.stages import Validated
from aotpipe.core.targets import Target
from aotpipe.errors import AotpipeError
from aotpipe.runtime.loading import why_not_runnable


def beside(targets: Sequence[Target]) -> tuple[Target, ...]:
    """What is to be built for besides some targets: their variants that this host can run."""
    wanted = dict.fromkeys(each for target in targets for each in target.variants)
    return tuple(each for each in wanted if each not in targets and not why_not_runnable(each))


def joined(targets: Sequence[Target], results: Mapping[Target, Result]) -> dict[Target, Result]:
    """The result of each target, with those of its variants that passed."""
    return {target: _with_variants(results[target], target, results) for target in targets}


def _with_variants(result: Result, target: Target, results: Mapping[Target, Result]) -> Result:
    if isinstance(result, AotpipeError):
        return result
    kept: list[Validated] = []
    notes: list[str] = []
    for each in target.variants:
        match results.get(each):
            case AotpipeError() as error:
                notes.append(f"without a program for {each}: {error.message}")
            case Validated(status="executed") as passed:
                kept.append(passed)
            case _:
                if reason := why_not_runnable(each):
                    notes.append(f"without a program for {each}, which could not be run: {reason}")
    return replace(result, variants=tuple(kept), notes=(*result.notes, *notes))
