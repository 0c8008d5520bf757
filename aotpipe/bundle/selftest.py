"""Runs a bundle's recorded calls on this host and judges the answers; needs no torch and no compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal

from aotpipe import goldens as goldens_file
from aotpipe.backends import Runner
from aotpipe.bundle import files
from aotpipe.bundle.load import choose, load, unrunnable
from aotpipe.bundle.manifest import GOLDENS, Manifest
from aotpipe.errors import BundleCorrupt
from aotpipe.goldens import Golden, Measure
from aotpipe.targets import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One output of one recorded call, beside its reference."""

    entry_point: str
    case: str
    output: str
    measure: Measure


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetResult:
    """One target's program; `reason` says why it was skipped."""

    target: str
    outcome: Literal["passed", "failed", "skipped"]
    calls: int = 0
    worst: Answer | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """What was seen, per target."""

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
        target: Which program; every one that this host can run where None.

    Raises:
        BundleError: The bundle, or the program of the target, cannot be used on this host.
        ProgramCrashed: A program reported a failure.
    """
    root = Path(path)
    manifest = files.read_manifest(root)
    calls = _goldens(root, manifest)
    if target is not None:
        return SelfTest(name=manifest.name, targets=(_run(root, str(target), calls),))
    choose(manifest)
    results = []
    for program in manifest.programs:
        reason = unrunnable(program) if program.file else program.reason
        results.append(
            TargetResult(target=program.target, outcome="skipped", reason=reason)
            if reason
            else _run(root, program.target, calls)
        )
    return SelfTest(name=manifest.name, targets=tuple(results))


def _goldens(root: Path, manifest: Manifest) -> tuple[Golden, ...]:
    try:
        return goldens_file.loads(files.content(root, manifest, GOLDENS).tobytes())
    except ValueError as error:
        raise BundleCorrupt(f"{GOLDENS} holds no recorded calls", reason=str(error)) from error


def _run(root: Path, target: str, calls: Sequence[Golden]) -> TargetResult:
    worst: Answer | None = None
    with load(root, target) as runner:
        for golden in calls:
            for answer in _judge(runner, golden):
                if worst is None or _badness(answer) > _badness(worst):
                    worst = answer
    failed = worst is not None and not worst.measure.passed
    return TargetResult(
        target=target, outcome="failed" if failed else "passed", calls=len(calls), worst=worst
    )


def _judge(runner: Runner, golden: Golden) -> list[Answer]:
    if golden.reset:
        runner.reset()
    got = runner.infer(golden.inputs, entry_point=golden.entry_point)
    return [
        Answer(
            entry_point=golden.entry_point,
            case=golden.case,
            output=name,
            measure=goldens_file.compare(
                got[name], want, *golden.allowed.get(name, (0.0, 0.0)), unsure=golden.unsure.get(name)
            ),
        )
        for name, want in golden.outputs.items()
    ]


def _badness(answer: Answer) -> tuple[bool, float]:
    return not answer.measure.passed, answer.measure.ratio
