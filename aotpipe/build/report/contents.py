"""What a report says of a build: a row for each target, what each stage took, what a user should know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from aotpipe.build.events import StageFinished
from aotpipe.core.estimate import Estimate
from aotpipe.core.serialization import Serializable, from_json
from aotpipe.core.stages import Finding, Latency, Parity, Partition, Status, Validated
from aotpipe.core.targets import Target
from aotpipe.errors import AotpipeError, ParityError


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReport:
    """One target's row.

    Attributes:
        reason: Why it did not run, or did not pass; empty where it did.
        stage, error, exit_code: Where it failed and with which error; empty where it did not.
        size_bytes: Of the program, without weights.
        notes: What a user should know of the compile.
        estimates: What its programs will cost on a chip that is not at hand.
        dialect: What the program was compiled from; empty where it failed.
        partition: How it is spread over several devices; None for one.
    """

    target: str
    status: Status
    reason: str = ""
    stage: str = ""
    error: str = ""
    exit_code: int = 0
    parity: Parity | None = None
    latency: tuple[Latency, ...] = ()
    size_bytes: int = 0
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    estimates: tuple[Estimate, ...] = ()
    dialect: str = ""
    partition: Partition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """What one stage took.

    Attributes:
        start_s: Seconds from the start of the build; compilers run beside other stages.
        wall_s: Seconds of wall time.
        peak_rss_bytes: The peak resident set, until it ended, of the process that did it.
        size_bytes: Of what it made: a module, the weights, a program; 0 where that is no bytes.
    """

    stage: str
    target: str
    start_s: float = 0.0
    wall_s: float
    peak_rss_bytes: int
    size_bytes: int = 0
    cached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Serializable):
    """What a build found out.

    Attributes:
        bundle: Where the bundle lies; empty where the build gave none.
        remarks: About the build itself, such as a cache that cannot be written.
        up_to_date: Nothing had changed and nothing was done; the rest tells of the build before.
    """

    schema: ClassVar = 1
    derived: ClassVar = ("schema", "ok")

    name: str
    bundle: str
    targets: tuple[TargetReport, ...]
    findings: tuple[Finding, ...] = ()
    remarks: tuple[str, ...] = ()
    stages: tuple[StageCost, ...] = ()
    toolchain: Mapping[str, str]
    wall_s: float
    up_to_date: bool = False

    @property
    def ok(self) -> bool:
        """Whether no target failed."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """The exit code of the first target that failed; 0 where none did."""
        return next((row.exit_code for row in self.targets if row.status == "failed"), 0)

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Read what `to_json` wrote; raises ValueError on anything else."""
        if isinstance(data, dict) and data.get("schema") != cls.schema:
            raise ValueError(f"a report of schema {data.get('schema')}; this aotpipe reads {cls.schema}")
        return from_json(cls, data)


def row_of(target: Target, result: Validated | AotpipeError) -> TargetReport:
    """The row of a target's program, or of the error that stands in its place."""
    if isinstance(result, AotpipeError):
        return TargetReport(
            target=str(target),
            status="failed",
            reason=str(result),
            stage=result.stage,
            error=type(result).__name__,
            exit_code=result.exit_code,
            parity=result.parity if isinstance(result, ParityError) else None,
        )
    compiled, every = result.compiled, (result, *result.variants)
    return TargetReport(
        target=str(target),
        status=result.status,
        reason=result.reason,
        parity=max((each.parity for each in every if each.parity), key=_badness, default=None),
        # That of the program which is loaded here.
        latency=every[1 if result.variants else 0].latency,
        size_bytes=sum(len(each.compiled.payload) for each in every),
        flags=compiled.flags,
        notes=(*compiled.notes, *result.notes, *_variant_notes(result)),
        estimates=compiled.estimates,
        dialect=compiled.dialect,
        partition=compiled.partition,
    )


def _badness(parity: Parity) -> tuple[bool, float]:
    return (not parity.passed, parity.worst.ratio if parity.worst else 0.0)


def _variant_notes(result: Validated) -> list[str]:
    targets = [str(each.compiled.target) for each in result.variants]
    notes = [f"with programs for {', '.join(targets)}; this CPU takes the first"] if targets else []
    for target, each in zip(targets, result.variants, strict=True):
        notes += [f"{target}: {note}" for note in (*each.compiled.notes, *each.notes)]
    return notes


def costs_of(finished: Iterable[StageFinished]) -> tuple[StageCost, ...]:
    """What each stage took, in the order of their starts."""
    return tuple(
        StageCost(
            stage=done.stage,
            target=done.target,
            start_s=done.start_s,
            wall_s=done.wall_s,
            peak_rss_bytes=done.peak_rss_bytes,
            size_bytes=done.size_bytes,
            cached=done.cached,
        )
        for done in sorted(finished, key=lambda done: done.start_s)
    )
