"""What a build found out, for people and for CI: a row for each target, what each stage took, remarks.

A build that failed has a report too, of the same form: `failure` is what ended it before its targets had
rows, and a row's `failure` what ended the target. While a build runs, its report says in which stage it is
(`report_folder.write_draft`): who kills it finds out where it was. docs/report.schema.json is the schema.

Torch-free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

from aotpipe.build.events import StageFinished
from aotpipe.core.coverage import Coverage
from aotpipe.core.estimate import Estimate
from aotpipe.core.serialization import Serializable, attributes, from_json
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Finding, Latency, Parity, Partition, Status, Validated
from aotpipe.core.targets import Target
from aotpipe.errors import (
    BUG,
    AotpipeError,
    BudgetExceeded,
    Interrupted,
    ParityError,
    SourceLine,
    Unproven,
    UnsupportedOps,
)

KILLED: Final = 137
"""What a shell gives for a process that SIGKILL ended."""

Level = Literal["error", "warning", "note"]


class Place(NamedTuple):
    """A line of the user's that a failure is about, beside its first."""

    where: SourceLine
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure(Serializable):
    """Why a build, or one of its targets, ended; the fields are those of an `AotpipeError`.

    Attributes:
        error: The class of the error; `Bug` for a fault of aotpipe, `Killed` of a build that did not end.
        places: Its lines beside `where`: each op without a lowering has one.
    """

    error: str
    stage: str
    exit_code: int
    message: str
    reason: str = ""
    hint: str = ""
    where: SourceLine | None = None
    log: str = ""
    places: tuple[Place, ...] = ()

    @classmethod
    def of(cls, error: BaseException, stage: str = "") -> Self:
        """What an error says; `stage` is where the build was, for an error that does not know."""
        if isinstance(error, AotpipeError):
            ops = error.ops if isinstance(error, UnsupportedOps) else ()
            said = attributes(error, "exit_code message reason hint where log")
            places = tuple(Place(op.where, f"{op.name}: {op.reason}") for op in ops if op.where)
            return cls(error=type(error).__name__, stage=error.stage, places=places, **said)
        if isinstance(error, KeyboardInterrupt):
            return cls(
                error=Interrupted.__name__,
                stage=stage,
                exit_code=Interrupted.exit_code,
                message="Ctrl-C or SIGTERM ended the build",
            )
        lines = f"{type(error).__name__}: {error}".splitlines()
        return cls(error="Bug", stage=stage, exit_code=BUG, message=f"a fault of aotpipe: {lines[0]}")

    def __str__(self) -> str:
        # As of the error: its class knows how it is shown.
        names = "message reason hint where log"
        return str(AotpipeError(**attributes(self, names))).replace("[aotpipe]", f"[{self.stage}]", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(Serializable):
    """What a target was allowed to take, and whether it did.

    Attributes:
        name: `parity`, `p50`, `p90`, `size`, `memory`, `programs`, `compile` or `coverage`.
        found: What it took, for people; empty where nothing says it, and `reason` says why.
    """

    target: str
    name: str
    limit: str
    found: str
    passed: bool
    reason: str = ""

    def __str__(self) -> str:
        what = f"is {self.found}" if self.found else f"is not known: {self.reason}"
        return f"{self.target}: {self.name} {what}, {self.limit} is allowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin(Serializable):
    """Where a report comes from.

    Attributes:
        command: The command line.
        date: When the build began, in UTC.
        machine: The CPU, its cores, the system.
        commit: Of the model's repository, with `+changes` where files differ; empty where there is none.
        source: The file of the model; empty where it is no file.
    """

    command: str = ""
    date: str = ""
    machine: str = ""
    commit: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReport(Serializable):
    """One target's row.

    Attributes:
        status: `unproven` with an error, too, where that is not allowed.
        reason: Why it did not run, or did not pass; empty where it did.
        failure: How it failed; None where it did not.
        dialect: What the program was compiled from; empty where it failed.
        partition: How it is spread over several devices; None for one.
    """

    derived: ClassVar = ("stage", "error", "exit_code")

    target: str
    status: Status
    reason: str = ""
    failure: Failure | None = None
    parity: Parity | None = None
    latency: tuple[Latency, ...] = ()
    size_bytes: int = 0
    compile_s: float = 0.0
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    estimates: tuple[Estimate, ...] = ()
    dialect: str = ""
    partition: Partition | None = None

    @property
    def exit_code(self) -> int:
        """That of its failure; 0 where it has none."""
        return self.failure.exit_code if self.failure else 0

    @property
    def stage(self) -> str:
        """Where it failed; empty where it did not."""
        return self.failure.stage if self.failure else ""

    @property
    def error(self) -> str:
        """The error by which it failed; empty where it did not."""
        return self.failure.error if self.failure else ""


class Problem(NamedTuple):
    """A line of a report for those who show it beside the code; `code` names its kind."""

    level: Level
    code: str
    message: str
    where: SourceLine | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Serializable):
    """What a build found out.

    Attributes:
        bundle: Where the bundle lies; empty where the build gave none.
        remarks: About the build itself, such as a cache that cannot be written.
        up_to_date: Nothing had changed and nothing was done; the rest tells of the build before.
        failure: What ended the build before its targets had rows; None where nothing did.
        entry_points: What the programs take and give.
        ops: How often each op stands in what the compilers were given.
        coverage: What the calls that programs were compared on reach of the model.
        source_diff: A unified diff from the file of the model's class to the same model with its branches,
            loops and state as ops and buffers of torch's; empty where nothing changes or it has no such form.
    """

    schema: ClassVar = 2
    derived: ClassVar = ("schema", "ok", "exit_code")

    name: str
    bundle: str = ""
    targets: tuple[TargetReport, ...] = ()
    failure: Failure | None = None
    budgets: tuple[Budget, ...] = ()
    origin: Origin = field(default_factory=Origin)
    entry_points: Mapping[str, Signature] = field(default_factory=dict)
    ops: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    remarks: tuple[str, ...] = ()
    stages: tuple[StageFinished, ...] = ()
    toolchain: Mapping[str, str] = field(default_factory=dict)
    wall_s: float = 0.0
    up_to_date: bool = False
    coverage: Coverage = field(default_factory=Coverage)
    source_diff: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing failed and no budget was exceeded."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """That of the first failure, or of a budget that was exceeded; 0 where there is none."""
        if failure := next(self.failures, None):
            return failure.exit_code
        return 0 if all(each.passed for each in self.budgets) else BudgetExceeded.exit_code

    @property
    def failures(self) -> Iterator[Failure]:
        """Of the build, and of its targets."""
        yield from filter(None, (self.failure, *(row.failure for row in self.targets)))

    @property
    def problems(self) -> Iterator[Problem]:
        """What a reader of the code should see beside it: failures, exceeded budgets, findings."""
        named = [("", self.failure), *((row.target, row.failure) for row in self.targets)]
        for target, failure in named:
            if failure is None:
                continue
            prefix = f"{target}: " if target and target not in failure.message else ""
            text = "\n".join(filter(None, (prefix + failure.message, failure.reason, failure.hint)))
            yield Problem("error", failure.error, text, failure.where)
            for place in failure.places:
                if place.where != failure.where:
                    yield Problem("error", failure.error, place.message, place.where)
        for budget in self.budgets:
            if not budget.passed:
                yield Problem("error", BudgetExceeded.__name__, str(budget), None)
        for finding in self.findings:
            text = "\n".join(filter(None, (finding.message, finding.hint)))
            yield Problem(finding.severity, finding.code, text, finding.where)

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
            status="unproven" if isinstance(result, Unproven) else "failed",
            reason=str(result),
            failure=Failure.of(result),
            parity=result.parity if isinstance(result, ParityError | Unproven) else None,
        )
    compiled, every = result.compiled, (result, *result.variants)
    notes = [*compiled.notes, *result.notes]
    if result.variants:
        targets = ", ".join(str(each.compiled.target) for each in result.variants)
        notes.append(f"with programs for {targets}; this CPU takes the first")
    for each in result.variants:
        notes += [f"{each.compiled.target}: {note}" for note in (*each.compiled.notes, *each.notes)]

    def badness(parity: Parity) -> tuple[bool, float]:
        return (not parity.passed, parity.worst.ratio if parity.worst else 0.0)

    return TargetReport(
        target=str(target),
        status=result.status,
        reason=result.reason,
        parity=max((each.parity for each in every if each.parity), key=badness, default=None),
        # That of the program which is loaded here.
        latency=every[1 if result.variants else 0].latency,
        size_bytes=sum(len(each.compiled.payload) for each in every),
        compile_s=sum(each.compiled.stats.wall_s for each in every),
        notes=tuple(notes),
        **attributes(compiled, "flags estimates dialect partition"),
    )
