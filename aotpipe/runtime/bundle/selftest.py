"""Runs a bundle's recorded calls on this host: judges the answers, and times the steps of its chains.

A self-test runs programs in a process of their own: one that dies on this host's CPU is a failed target, not
the end. Steps are timed in this process. Needs no torch, but for islands that take torch's tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Final, Literal

from aotpipe.core.stages import Parity, ParityCase
from aotpipe.core.targets import Target
from aotpipe.errors import AotpipeError, BundleError, OutsideBuckets
from aotpipe.runtime.bundle import files
from aotpipe.runtime.bundle.files import Bundle
from aotpipe.runtime.bundle.load import choose, contents, load, why_not_runnable
from aotpipe.runtime.bundle.manifest import WEIGHTS, Program
from aotpipe.runtime.goldens import Golden, examples, sequences
from aotpipe.runtime.islands.chain import Allowed
from aotpipe.runtime.islands.chain_runner import ChainRunner, StepTime, load_parts
from aotpipe.runtime.loading import Runner
from aotpipe.runtime.worker import Worker

Outcome = Literal["passed", "failed", "skipped"]
_WARM_UP: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetResult:
    """One target's program; `reason` says why it was skipped, or why its calls could not be judged."""

    target: str
    outcome: Outcome
    calls: int = 0
    worst: ParityCase | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """The outcome of a self-test, target by target."""

    name: str
    targets: tuple[TargetResult, ...]

    @property
    def passed(self) -> bool:
        """Whether a program ran and none failed."""
        outcomes = {result.outcome for result in self.targets}
        return "passed" in outcomes and "failed" not in outcomes


def selftest(
    path: str | PathLike[str], target: str | Target | None = None, *, islands: Allowed = ()
) -> SelfTest:
    """Run the recorded calls.

    Without a target, those of every program that this host can run; a target's variants count as it.
    `islands` are those of `load`.

    Raises:
        BundleError: The bundle, or the program of the target, cannot be used on this host.
    """
    bundle = files.open_bundle(path)
    calls = files.goldens(bundle)
    chosen = choose(bundle.manifest, target)
    programs = bundle.manifest.programs if target is None else (chosen,)
    # A variant may be another target's own program, too.
    every = {each.target: each for program in programs for each in program.all}
    return SelfTest(
        name=bundle.manifest.name,
        targets=tuple(_result(bundle, program, calls, islands) for program in every.values()),
    )


def _result(bundle: Bundle, program: Program, calls: Sequence[Golden], islands: Allowed) -> TargetResult:
    result = partial(TargetResult, target=program.target)
    if reason := why_not_runnable(program) if program.file else program.reason:
        return result(outcome="skipped", reason=reason)
    try:
        with Worker() as process:
            parity = judged(_loaded(process, bundle, program, islands), calls)
    except BundleError:
        raise
    except AotpipeError as error:
        reason = "\n".join(filter(None, (error.message, error.reason)))
        return result(outcome="failed", reason=reason)
    if not parity.calls:
        return result(outcome="skipped", reason="no recorded call has sizes that a bucket takes")
    return result(outcome="passed" if parity.passed else "failed", calls=parity.calls, worst=parity.worst)


def judged(worker: Worker | Runner, calls: Sequence[Golden]) -> Parity:
    """The comparison of the calls whose sizes a program was built for."""
    cases: list[ParityCase] = []
    compared = 0
    for sequence in sequences(calls):
        for golden in sequence:
            if golden.reset:
                worker.reset()
            try:
                got = worker.infer(golden.inputs, entry_point=golden.entry_point)
            except OutsideBuckets:
                break  # the program's state is not the reference's from here on
            cases += [golden.judge(name, got[name]) for name in golden.outputs]
            compared += 1
    return Parity(cases=tuple(cases), calls=compared, rule="")


def _loaded(process: Worker, bundle: Bundle, program: Program, islands: Allowed) -> Worker | ChainRunner:
    """What calls the program: the worker, or a chain whose segments it runs."""
    payload, _, state = contents(bundle, program, verify=True)
    weights = files.locate(bundle.path, WEIGHTS)
    return load_parts(
        partial(process.load, Target.parse(program.target), payload, weights=weights),
        bundle.manifest.parts,
        signatures=bundle.manifest.signatures,
        initial_state=state,
        asserts=bundle.manifest.asserts,
        allowed=islands,
    )


def steps(
    path: str | PathLike[str], target: str | Target | None = None, *, calls: int, islands: Allowed = ()
) -> tuple[StepTime, ...]:
    """Run a bundle's chains and time each step of some calls; the other arguments are those of `load`.

    Raises:
        BundleError: The bundle has no islands, or cannot be used on this host.
    """
    bundle = files.open_bundle(path)
    if bundle.manifest.parts is None:
        raise BundleError(
            f"the bundle at {bundle.path} has no islands",
            reason="each entry point is one program",
            hint="`aotpipe bench` times it",
        )
    first = examples(files.goldens(bundle))
    with load(path, target, islands=islands) as runner:
        assert isinstance(runner, ChainRunner)
        for samples in (_WARM_UP, calls):
            runner.forget_times()
            for golden in first:
                runner.time(golden.inputs, entry_point=golden.entry_point, samples=samples, reset=True)
        return runner.times()
