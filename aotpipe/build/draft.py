"""The report of a build while it runs, and of one that ended before its targets had results. Torch-free.

A build that is killed by SIGKILL, by a container's limit or with its machine says nothing more: its report is
then what was written before, that it was killed in the stage which had begun last.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from aotpipe.build import report as reports
from aotpipe.build import report_folder
from aotpipe.build.events import Event, Listener, Recorder, StageFinished, StageStarted
from aotpipe.build.report import Failure, Origin, Report
from aotpipe.core.stages import Finding
from aotpipe.errors import StoreError
from aotpipe.runtime import toolchain

DEFAULT_FOLDER: Final = Path("artifacts")
"""Where bundles and their reports go that are given no other place."""

_GIT_S: Final = 5.0


@dataclass
class Draft:
    """The place of a build's report, and what is known of the build before it ends.

    Attributes:
        name: The model's; until it is known, what its reference tells.
        path: The bundle's; None where it follows from the name.
    """

    name: str
    path: Path | None
    origin: Origin
    findings: list[Finding] = field(default_factory=list)
    _start: float = field(default_factory=time.perf_counter)
    _written: Path | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, model: object, name: str | None, out: str | Path | None) -> Self:
        """That of a build of a model, which may be a reference, for a bundle at `out`."""
        source = model.partition(":")[0] if isinstance(model, str) else ""
        is_file = source.endswith(".py")
        stem = Path(source).stem if is_file else source.rpartition(".")[2]
        return cls(
            name=name or re.sub(r"[^\w.-]", "_", stem) or "model",
            path=None if out is None else Path(out).absolute(),
            origin=origin(source if is_file else ""),
        )

    @property
    def folder(self) -> Path:
        """Where the report lies."""
        return report_folder.folder_of(self.path or (DEFAULT_FOLDER / self.name).absolute())

    def rename(self, name: str) -> None:
        """Say the model's own name, now that it is known; a draft at another place goes."""
        before, self.name = self.folder, name
        if self._written == before != self.folder:
            shutil.rmtree(before, ignore_errors=True)

    def listening(self, listener: Listener | None) -> Listener:
        """A listener that writes the draft at each start of a stage, and hands each event on."""
        recorder = Recorder()

        def heard(event: Event) -> None:
            if listener:
                listener(event)
            match event:
                case StageStarted(stage=stage, target=target) if stage != "report":
                    self.write(f"in the stage {stage} {target}".rstrip(), recorder)
                case StageFinished():
                    recorder.finished.append(event)
                case Finding():
                    self.findings.append(event)
                case _:
                    pass

        return heard

    def write(self, where: str, recorder: Recorder) -> None:
        """Write the report that stands if nothing follows."""
        failure = Failure(
            error="Killed",
            stage=where.removeprefix("in the stage ").partition(" ")[0]
            if "in the stage" in where
            else "load",
            exit_code=reports.KILLED,
            message=f"the build did not end: it was killed {where}, or runs still",
            hint="look for what killed it: a time limit, a limit of memory (dmesg), a cancelled job",
        )
        with self._lock:
            self._written = self.folder
            report_folder.write_draft(self._report(failure, recorder), self.folder)

    def ended(self, error: BaseException, recorder: Recorder) -> Report:
        """Write the report of a build that an error ended, where it can be written, and give it."""
        failed = [done.stage for done in recorder.finished if done.failed]
        # A compiler fails its target alone; those that still run are killed after what ended the build.
        stages = [stage for stage in failed if stage != "compile"] or failed
        report = self._report(Failure.of(error, stages[-1] if stages else "build"), recorder)
        with self._lock, suppress(StoreError):
            report_folder.write(report, self.folder)
        return report

    def completed(self, report: Report, recorder: Recorder) -> Report:
        """A report, with what is known of the build as a whole."""
        return replace(
            report,
            origin=self.origin,
            remarks=tuple(recorder.remarks),
            stages=recorder.by_start,
            toolchain=toolchain.versions(),
            wall_s=time.perf_counter() - self._start,
        )

    def _report(self, failure: Failure, recorder: Recorder) -> Report:
        report = Report(name=self.name, bundle="", failure=failure, findings=tuple(self.findings))
        return self.completed(report, recorder)


def origin(source: str) -> Origin:
    """What there is to know of this process, and of the model's file."""
    name, *rest = sys.argv or [""]
    program = "aotpipe" if Path(name).parent.name == "aotpipe" else Path(name).name
    folder = Path(source).absolute().parent if source else Path.cwd()
    return Origin(
        command=shlex.join([program, *rest]),
        date=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        machine=machine(),
        commit=_commit(folder),
        source=source,
    )


def machine() -> str:
    """The CPU by its own name, how many cores this process may use, the system."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    name = platform.processor() or platform.machine()
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if found := re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE):
            name = found[1]
    return f"{name}, {cores} cores, {platform.system()} {platform.machine()}"


def _commit(folder: Path) -> str:
    """The commit of the repository that a folder is in; empty where git knows none."""
    argv = [
        "git",
        "-C",
        str(folder),
        "describe",
        "--always",
        "--abbrev=40",
        "--exclude=*",
        "--dirty=+changes",
    ]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_GIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
