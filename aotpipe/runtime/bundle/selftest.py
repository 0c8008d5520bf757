"""Runs a bundle's recorded calls on this host and judges the answers; needs no torch and no compiler.

Programs run in a process of their own: one that dies on this host's CPU is a failed target here, not the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Literal

from aotpipe.core.targets import Target
from aotpipe.errors import AotpipeError, BundleError, OutsideBuckets
from aotpipe.runtime.bundle import files
from aotpipe.runtime.bundle.load import choose, contents, why_not_runnable
from aotpipe.runtime.bundle.manifest import WEIGHTS, Manifest, Program
from aotpipe.runtime.goldens import Golden, Measure, sequences
from aotpipe.runtime.islands.chain_runner import ChainRunner, load_parts
from aotpipe.runtime.worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One output of one recorded call, beside its reference."""

    entry_point: str
    case: str
    output: str
    measure: Measure


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetResult:
    """One target's program; `reason` says why it was skipped, or why its calls could not be judged."""

    target: str
    outcome: Literal["passed", "failed", "skipped"]
    calls: int = 0
    worst: Answer | None = None
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


def selftest(path: str | PathLike[str], target: str | Target | None = None) -> SelfTest:
    """Run the recorded calls.

    Args:
        path: The bundle's folder.
        target: Which program, with its variants; every one that this host can run where None.

    Raises:
        BundleError: The bundle, or the program of the target, cannot be used on this host.
    """
    root = Path(path)
    manifest = files.read_manifest(root)
    calls = files.goldens(root, manifest)
    chosen = choose(manifest, target)
    programs = manifest.programs if target is None else (chosen,)
    # A variant may be another target's own program, too.
    every = {each.target: each for program in programs for each in program.all}
    return SelfTest(
        name=manifest.name,
        targets=tuple(_result(root, manifest, program, calls) for program in every.values()),
    )


def _result(root: Path, manifest: Manifest, program: Program, calls: Sequence[Golden]) -> TargetResult:
    if reason := why_not_runnable(program) if program.file else program.reason:
        return TargetResult(target=program.target, outcome="skipped", reason=reason)
    try:
        with Worker() as process:
            worker = _loaded(process, root, manifest, program)
            answers, compared = _judged(worker, calls)
    except BundleError:
        raise
    except AotpipeError as error:
        reason = "\n".join(filter(None, (error.message, error.reason)))
        return TargetResult(target=program.target, outcome="failed", reason=reason)
    worst = max(answers, key=lambda answer: (not answer.measure.passed, answer.measure.ratio), default=None)
    if not compared:
        return TargetResult(
            target=program.target, outcome="skipped", reason="no recorded call has sizes that a bucket takes"
        )
    passed = all(answer.measure.passed for answer in answers)
    return TargetResult(
        target=program.target, outcome="passed" if passed else "failed", calls=compared, worst=worst
    )


def _judged(worker: Worker | ChainRunner, calls: Sequence[Golden]) -> tuple[list[Answer], int]:
    """The answers to the calls whose sizes a program was built for, and how many those are."""
    answers: list[Answer] = []
    compared = 0
    for sequence in sequences(calls):
        for golden in sequence:
            if golden.reset:
                worker.reset()
            try:
                got = worker.infer(golden.inputs, entry_point=golden.entry_point)
            except OutsideBuckets:
                break  # the program's state is not the reference's from here on
            answers += [
                Answer(
                    entry_point=golden.entry_point,
                    case=golden.case,
                    output=name,
                    measure=golden.measure(name, got[name]),
                )
                for name in golden.outputs
            ]
            compared += 1
    return answers, compared


def _loaded(process: Worker, root: Path, manifest: Manifest, program: Program) -> Worker | ChainRunner:
    """What calls the program: the worker, or a chain whose segments it runs."""
    found = contents(root, manifest, program, verify=True)
    weights = files.locate(root, WEIGHTS)
    return load_parts(
        partial(process.load, Target.parse(program.target), found.payload, weights=weights),
        manifest.parts,
        signatures=manifest.signatures,
        initial_state=found.initial_state,
        asserts=manifest.asserts,
    )
