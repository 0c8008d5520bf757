"""What a build found out, for people and for CI.

`write(report, folder)` puts `report.json`, `report.html`, `junit.xml` and `trace.json` into a folder, all or
nothing. The folder lies beside the bundle (`NAME.report`), not inside: a report holds times of this machine,
and a bundle is equal byte for byte wherever it is built. A build that failed has a report too.

Torch-free; jinja2 is imported by `write`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from aotpipe.build.events import StageFinished
from aotpipe.core.estimate import Estimate
from aotpipe.core.serialization import Serializable, from_json
from aotpipe.core.stages import Finding, Latency, Parity, Partition, Status, Validated
from aotpipe.core.targets import Target
from aotpipe.errors import AotpipeError, ParityError
from aotpipe.runtime.bundle import atomic_replace
from aotpipe.runtime.store import typed_os_errors

__all__ = ["Report", "StageCost", "TargetReport", "costs_of", "folder_of", "read", "row_of", "write"]


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
    """A build.

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
        """Of the first target that failed."""
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


def folder_of(bundle: Path) -> Path:
    """Where a bundle's report lies: beside it."""
    return bundle.with_name(bundle.name + ".report")


def get_ready() -> None:
    """Do what of `write` can be done before there is a report."""
    from aotpipe.build.report import junit, trace  # noqa: F401
    from aotpipe.build.report.html import template

    template()


def write(report: Report, folder: Path) -> None:
    """Write the four files; what was there before is replaced as a whole.

    Raises:
        ReadOnly, DiskFull, StoreError: They cannot be written; what was there before is still there.
    """
    from aotpipe.build.report.html import render
    from aotpipe.build.report.junit import to_junit
    from aotpipe.build.report.trace import to_trace

    files = {
        "report.json": json.dumps(report.to_json(), indent=2, allow_nan=False) + "\n",
        "report.html": render(report),
        "junit.xml": to_junit(report),
        "trace.json": to_trace(report),
    }
    with typed_os_errors("the report", folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_replace.folder(folder) as work:
            for name, text in files.items():
                (work / name).write_text(text, encoding="utf-8")


def read(folder: Path) -> Report | None:
    """The report in a folder; None where there is none that this aotpipe reads."""
    try:
        return Report.from_json(json.loads((folder / "report.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
