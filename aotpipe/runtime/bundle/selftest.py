"""Runs a bundle's recorded calls on this host: judges the answers, and times the steps of its chains.

Programs are judged in a process of their own, within `runtime.sandbox`: one that dies on this host's CPU is a
failed target, not the end. Steps are timed in this process. Needs no torch, but for islands that take torch's
tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any, Final, Literal

from aotpipe.core.stages import ParityCase
from aotpipe.core.targets import Target
from aotpipe.errors import AotpipeError, BundleError
from aotpipe.runtime.bundle import files
from aotpipe.runtime.bundle.files import Bundle
from aotpipe.runtime.bundle.load import choose, contents, load, why_not_runnable
from aotpipe.runtime.bundle.manifest import Program
from aotpipe.runtime.bundle.recorded import judged
from aotpipe.runtime.goldens import Golden, examples
from aotpipe.runtime.islands.chain import Allowed
from aotpipe.runtime.islands.chain_runner import ChainRunner, StepTime

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
        payload, _, state = contents(bundle, program, verify=True)
        parity = judged(bundle, program, calls, payload=payload, state=state, islands=islands)
    except BundleError:
        raise
    except AotpipeError as error:
        reason = "\n".join(filter(None, (error.message, error.reason)))
        return result(outcome="failed", reason=reason)
    if not parity.calls:
        return result(outcome="skipped", reason="no recorded call has sizes that a bucket takes")
    return result(outcome="passed" if parity.passed else "failed", calls=parity.calls, worst=parity.worst)


def steps(
    path: str | PathLike[str], target: str | Target | None = None, *, calls: int, **options: Any
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
    with load(path, target, **options) as runner:
        assert isinstance(runner, ChainRunner)
        for samples in (_WARM_UP, calls):
            runner.forget_times()
            for golden in first:
                runner.time(golden.inputs, entry_point=golden.entry_point, samples=samples, reset=True)
        return runner.times()
