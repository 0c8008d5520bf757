"""What a build found out, for people and for CI: a row for each target, what each stage took, remarks.

`write(report, folder)` puts `report.json`, `report.html`, `junit.xml` and `trace.json` into a folder, all or
nothing. The folder lies beside the bundle (`NAME.report`), not inside: a report holds times of this machine,
and a bundle is equal byte for byte wherever it is built. A build that failed has a report too.

Torch-free; jinja2 is imported by `write`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self
from xml.etree import ElementTree as ET

from aotpipe.build.events import StageFinished
from aotpipe.core.coverage import UNKNOWN, Coverage
from aotpipe.core.estimate import Estimate
from aotpipe.core.serialization import Serializable, attributes, from_json
from aotpipe.core.stages import Finding, Latency, Parity, Partition, Status, Validated
from aotpipe.core.targets import Target
from aotpipe.core.units import count, duration, share, size
from aotpipe.errors import AotpipeError, ParityError, Unproven
from aotpipe.runtime.bundle import atomic_replace
from aotpipe.runtime.store import typed_os_errors
from aotpipe.validate.parity import describe

if TYPE_CHECKING:
    import jinja2

_lock: Final = threading.Lock()
_PROCESS: Final = 1
_BUILD: Final = "build"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReport:
    """One target's row.

    Attributes:
        status: `unproven` with an error, too, where that is not allowed.
        reason: Why it did not run, or did not pass; empty where it did.
        stage, error, exit_code: Where it failed and with which error; empty where it did not.
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
class Report(Serializable):
    """What a build found out.

    Attributes:
        bundle: Where the bundle lies; empty where the build gave none.
        remarks: About the build itself, such as a cache that cannot be written.
        up_to_date: Nothing had changed and nothing was done; the rest tells of the build before.
        coverage: What the calls that programs were compared on reach of the model.
    """

    schema: ClassVar = 1
    derived: ClassVar = ("schema", "ok")

    name: str
    bundle: str
    targets: tuple[TargetReport, ...]
    findings: tuple[Finding, ...] = ()
    remarks: tuple[str, ...] = ()
    stages: tuple[StageFinished, ...] = ()
    toolchain: Mapping[str, str]
    wall_s: float
    up_to_date: bool = False
    coverage: Coverage = UNKNOWN

    @property
    def ok(self) -> bool:
        """Whether no target failed."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """The exit code of the first target that failed; 0 where none did."""
        return next((row.exit_code for row in self.targets if row.exit_code), 0)

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
            stage=result.stage,
            error=type(result).__name__,
            exit_code=result.exit_code,
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
        notes=tuple(notes),
        **attributes(compiled, "flags estimates dialect partition"),
    )


def folder_of(bundle: Path) -> Path:
    """Where a bundle's report lies: beside it."""
    return bundle.with_name(bundle.name + ".report")


def write(report: Report, folder: Path) -> None:
    """Write the four files; what was there before is replaced as a whole.

    Raises:
        ReadOnly, DiskFull, StoreError: They cannot be written; what was there before is still there.
    """
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


def render(report: Report) -> str:
    """The report as one HTML page that needs nothing but itself."""
    estimates = [(row.target, each) for row in report.targets for each in row.estimates if each.memory_bytes]
    return template().render(report=report, estimates=estimates)


def template() -> jinja2.Template:
    """The page without its report; a thread that asks while another compiles it waits for that one."""
    with _lock:
        return _template()


@cache
def _template() -> jinja2.Template:
    # Late: a host that serves bundles has no jinja2.
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(count=count, duration=duration, share=share, size=size)
    source = resources.files("aotpipe.build").joinpath("report.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(source)


def to_junit(report: Report) -> str:
    """The report as JUnit XML, one test per target; what was not run, or is unproven, is skipped."""
    failures = sum(bool(row.exit_code) for row in report.targets)
    passed = sum(row.status == "executed" for row in report.targets)
    suite = ET.Element(
        "testsuite",
        name=f"aotpipe.{report.name}",
        tests=str(len(report.targets)),
        failures=str(failures),
        errors="0",
        skipped=str(len(report.targets) - failures - passed),
        time=f"{report.wall_s:.3f}",
    )
    suite.extend(_case(report, row) for row in report.targets)
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _case(report: Report, row: TargetReport) -> ET.Element:
    seconds = sum(cost.wall_s for cost in report.stages if cost.target == row.target)
    case = ET.Element("testcase", classname=report.name, name=row.target, time=f"{seconds:.3f}")
    match row.status:
        case _ if row.exit_code:
            failure = ET.SubElement(case, "failure", type=row.stage, message=_printable(row.reason))
            cases = row.parity.cases if row.parity else ()
            bad = [describe(one) for one in cases if not one.passed] or [row.reason]
            failure.text = _printable("\n".join(bad))
        case "compiled" | "unproven":
            ET.SubElement(case, "skipped", message=_printable(row.reason))
        case "executed":
            worst = row.parity.worst if row.parity else None
            ET.SubElement(case, "system-out").text = (
                f"{row.parity.calls} calls, worst {worst.ratio:.3g} of the allowed error"
                if row.parity and worst
                else ""
            )
    return case


def _printable(text: str) -> str:
    """XML 1.0 cannot hold control characters, which a compiler's message may."""
    return "".join(char for char in text if char in "\t\n" or char >= " ")


def to_trace(report: Report) -> str:
    """The stages on a time line, as the trace events that Perfetto and chrome://tracing open.

    The format is Chrome's Trace Event Format (JSON): a complete event (`ph` X) per stage, in microseconds
    from the start of the build. The build's own stages share one track; each compiler has a track of its own.
    A stage whose result came from the store has the time that this took.
    """
    tracks = {name: index for index, name in enumerate(dict.fromkeys([_BUILD, *map(_track, report.stages)]))}
    named = [("process_name", 0, f"aotpipe build {report.name}")]
    named += [("thread_name", track, name) for name, track in tracks.items()]
    names = [
        {"ph": "M", "name": kind, "pid": _PROCESS, "tid": track, "args": {"name": name}}
        for kind, track, name in named
    ]
    events = [_event(cost, tracks[_track(cost)]) for cost in report.stages]
    return json.dumps({"traceEvents": [*names, *events], "displayTimeUnit": "ms"}) + "\n"


def _track(cost: StageFinished) -> str:
    return f"compile {cost.target}" if cost.stage == "compile" else _BUILD


def _event(cost: StageFinished, track: int) -> Mapping[str, Any]:
    details = attributes(cost, "target cached peak_rss_bytes size_bytes")
    return {
        "ph": "X",
        "name": f"{cost.stage} {cost.target}".strip(),
        "cat": cost.stage,
        "pid": _PROCESS,
        "tid": track,
        "ts": round(cost.start_s * 1e6),
        "dur": round(cost.wall_s * 1e6),
        "args": {key: value for key, value in details.items() if value or key == "cached"},
    }
