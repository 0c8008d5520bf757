"""One model over many targets: each program that was compiled is run on its own. Torch-free.

A target that fails does not stop the others: their results go to the store, and a later build finds them.
Programs are compared and timed one after another, once no compiler is running, since it would be timed too.
torch is imported only where a program has to be timed beside eager.

A target's row names its variants (`Target.variants`): programs for CPUs that have more than it asks for, so
that one bundle is fast on every level of x86-64. They are compiled, run and compared as any program, and
`joined` puts those that were executed here at parity into their targets' results: no program that never ran
is loaded for a target that says `executed`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from aotpipe.backends import compiler, module_of, own_flags
from aotpipe.build.compile_stage import Compiling
from aotpipe.build.prepared import Ready
from aotpipe.core.coverage import Coverage, Goal
from aotpipe.core.serialization import dumps, loads
from aotpipe.core.stages import Compiled, Dialect, Parity, Validated
from aotpipe.core.targets import Backend, Target
from aotpipe.errors import AotpipeError, CompileError, NotCovered, ParityError, ProgramCrashed, Unproven
from aotpipe.runtime import toolchain
from aotpipe.runtime.loading import why_not_runnable
from aotpipe.runtime.store import digest
from aotpipe.runtime.worker import Worker
from aotpipe.validate import validate
from aotpipe.validate.triangulation import Opinion, outliers

if TYPE_CHECKING:
    from aotpipe.validate.eager.eager import Eager

# In this time programs come from the store, and no compiler finishes.
_STORE_S: Final = 0.1
_FILE: Final = "validated.json"
_FIXED_SIGNS: Final = (
    "fix the signs where the model takes the vectors:  `v = v * torch.where(v[..., :1, :] < 0, -1.0, 1.0)`"
)
Result = Validated | AotpipeError
"""A target's program that passed, or the error that stands in its place."""


def run(ready: Ready, compiling: Compiling, *, latency: bool) -> dict[Target, Result]:
    """Wait for the compilers and validate for every target, in their order.

    A program whose numbers are wrong is compiled again, with more cautious flags, where there are such.
    """
    backends = {target.backend for target in compiling.targets if not why_not_runnable(target)}
    with ExitStack() as stack:
        # Workers import what they need while the last compilers run; there are none if all are done.
        workers = {
            backend: stack.enter_context(Worker(backend=backend))
            for backend in (backends if compiling.is_running(after_s=_STORE_S) else ())
        }
        judge = _Judge(ready, compiling, latency, workers, trials=len(compiling.targets))
        return {target: judge.result(target, program) for target, program in compiling.wait().items()}


@dataclass
class _Judge:
    """Validates one program after another, beside one eager model; `trials` counts those that are planned."""

    ready: Ready
    compiling: Compiling
    latency: bool
    workers: dict[Backend, Worker]
    trials: int

    def result(self, target: Target, program: Compiled | AotpipeError) -> Result:
        """Validate what a compiler gave; a wrong program is compiled again, where that can help."""
        if isinstance(program, AotpipeError):
            return program
        first = self.validate(program)
        if not isinstance(first, ParityError | ProgramCrashed):
            return first
        module = self.ready.prepared.lowered[module_of(target)]
        flags = own_flags(target, self.compiling.settings.extra_flags)
        for fallback in compiler(target).fallbacks_for_numbers(module, target, flags):
            self.trials += 1
            self.compiling.cache.recorder.planned({"compile": self.trials, "validate": self.trials})
            try:
                careful = self.compiling.compile(module, target, fallback)
            except CompileError:
                continue
            if isinstance(second := self.validate(careful), Validated):
                note = f"compiled {fallback.name}: with the faster flags {first.message}"
                return replace(second, notes=(note, *second.notes))
        return first

    def validate(self, compiled: Compiled) -> Result:
        """Run a program and compare, or find that this was done before."""
        # A time is one of this host, and so is the claim that a program ran here, or could not.
        here = [toolchain.tools_digest(), toolchain.host_digest()]
        runs = why_not_runnable(compiled.target, compiled.host_features)
        # The program itself: what is kept under its digest may have been changed since.
        program = hashlib.sha256(compiled.payload).hexdigest()
        key = digest([compiled.digest, program, self.ready.prepared.digest, self.latency, *here, runs])
        cache = self.compiling.cache
        try:
            with cache.recorder.stage("validate", str(compiled.target)) as running:
                found = cache.load(
                    "validated", key, lambda e: loads(Validated, e.text(_FILE), compiled=compiled)
                )
                if found is not None:
                    running.cached = True
                    return found
                validated = self._run(compiled)
                cache.put("validated", key, lambda: {_FILE: dumps(validated)})
                return validated
        except AotpipeError as error:
            return error

    def _run(self, compiled: Compiled) -> Validated:
        loadable, goldens = self.ready.prepared.loadable, self.ready.prepared.goldens
        if loadable.parts is not None:
            self.ready.chain.canonical  # noqa: B018  # marks the model's functions, where its parts came from the store
        if why_not_runnable(compiled.target, compiled.host_features):
            return validate(compiled, loadable, goldens)
        worker = self.workers.pop(compiled.target.backend, None)
        if not self.latency:
            return validate(compiled, loadable, goldens, worker=worker)
        import torch

        loadable = replace(loadable, threads=torch.get_num_threads())
        return validate(compiled, loadable, goldens, eager=self._eager, worker=worker)

    @cached_property
    def _eager(self) -> Eager:
        from aotpipe.validate.eager.eager import Eager

        return Eager(self.ready.chain.canonical.entries, self.ready.prepared.loadable.signatures)


def proven(result: Result) -> Result:
    """The same, or an error in the place of a program of which no call says anything."""
    if isinstance(result, AotpipeError) or result.status != "unproven":
        return result
    return Unproven(
        f"{result.compiled.target}: the program ran, and no output says whether it is right",
        reason=result.reason,
        hint="give example inputs that reach the other branch, or build with --allow-unproven",
        parity=result.parity,
    )


def triangulated(
    results: Mapping[Target, Result], ready: Ready, compiling: Compiling
) -> dict[Target, Result]:
    """The results, of which those that failed parity say who is the outlier.

    Where a program of IREE's failed, one of the other dialect is compiled and compared too: the two share the
    exported program and IREE, and nothing of the lowering.
    """
    lowered = ready.prepared.lowered
    parities = {target: each.parity for target, each in results.items() if not isinstance(each, AotpipeError)}
    parities |= {target: each.parity for target, each in results.items() if isinstance(each, ParityError)}
    opinions = [
        Opinion(str(target), f"{target.backend}'s {lowered[module_of(target)].dialect} dialect", parity)
        for target, parity in parities.items()
        if parity is not None
    ]
    failed = {target: each for target, each in results.items() if isinstance(each, ParityError)}
    said: list[str] = []
    if of_iree := [target for target in failed if target.backend == "iree"]:
        other = _by_other_dialect(of_iree[0], ready, compiling)
        if isinstance(other, Opinion):
            opinions.append(other)
        else:
            said = [other] if other else []
    free = _free_signs(ready) if failed else []
    said = [*outliers(opinions), *said, *free]
    for error in failed.values():
        error.reason = "\n".join([error.reason, *said])
        if free:
            error.hint = _FIXED_SIGNS
    return dict(results)


def _free_signs(ready: Ready) -> list[str]:
    """What the model reads of which the sign is free."""
    from aotpipe.passes import undetermined

    if ready.prepared.loadable.parts is not None:
        return []
    try:
        return undetermined.vectors(entry.program for entry in ready.chain.exported.entries)
    except AotpipeError:
        return []  # a model from the store is traced again here, and may have changed meanwhile


def _by_other_dialect(target: Target, ready: Ready, compiling: Compiling) -> Opinion | str:
    """What a target's program of the dialect that was not asked for says, or why there is none."""
    if ready.prepared.loadable.parts is not None:
        return ""  # a chain with islands has one dialect
    asked = ready.prepared.lowered[module_of(target)].dialect
    dialect: Dialect = "torch" if asked == "stablehlo" else "stablehlo"
    name = f"{target} by the {dialect} dialect"
    try:
        # Of a model from the store it is traced again here, and may have changed meanwhile.
        chain = ready.chain.in_dialect(dialect)
        with chain.loadable() as loadable:
            compiled = compiling.compile(chain.lowered[module_of(target)], target)
            parity = validate(compiled, loadable, ready.prepared.goldens).parity
    except ParityError as error:
        parity = error.parity
    except AotpipeError as error:
        return f"{name} says nothing: {error.message}"
    return Opinion(name, f"{target.backend}'s {dialect} dialect", parity) if parity is not None else ""


def covered(result: Result, coverage: Coverage, required_percent: float | None) -> Result:
    """The same, or an error in its place where the calls that it was compared on reach too little."""
    if isinstance(result, AotpipeError) or result.parity is None or required_percent is None:
        return result
    if coverage.notes:
        return NotCovered(
            f"{result.compiled.target}: nobody knows what the calls reach",
            reason="\n".join(coverage.notes),
            hint="ask for no coverage",
        )
    coverage = _compared(coverage, result.parity)
    if coverage.percent >= required_percent:
        return result
    first = coverage.missed[0]
    listed = [f"{goal}: {goal.reason}" for goal in coverage.missed]
    return NotCovered(
        f"{result.compiled.target}: {coverage.reached} of {coverage.total} are reached, "
        f"{coverage.percent:.3g}% where {required_percent:g}% is required",
        reason="\n".join(listed),
        hint="give inputs that reach it: --samples FILE.npz, or other example inputs or value ranges",
        where=first.where,
    )


def _compared(coverage: Coverage, parity: Parity) -> Coverage:
    """The coverage by the calls that a program was compared on, which may not be all."""
    cases = {(case.entry_point, case.case) for case in parity.cases}
    # An entry point without outputs has no cases.
    entries = {entry_point for entry_point, _ in cases}

    def is_left_out(goal: Goal) -> bool:
        return goal.reached and goal.entry_point in entries and (goal.entry_point, goal.case) not in cases

    return replace(
        coverage,
        goals=tuple(
            replace(goal, case="", reason=f"the program was not compared on {goal.case}, which reaches it")
            if is_left_out(goal)
            else goal
            for goal in coverage.goals
        ),
    )


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
            case Validated(status="executed" | "unproven") as passed:
                kept.append(passed)
            case _:
                if reason := why_not_runnable(each):
                    notes.append(f"without a program for {each}, which could not be run: {reason}")
    return replace(result, variants=tuple(kept), notes=(*result.notes, *notes))
