"""Shows a build's events on stderr: progress bars on a terminal, plain lines elsewhere and in CI.

`shown()` gives the listener to hand to `aotpipe.build`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, assert_never

from aotpipe.build.events import Event, Listener, Planned, Remark, Stage, StageFinished, StageStarted
from aotpipe.cli import text
from aotpipe.core.stages import Finding
from aotpipe.core.units import duration

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


def is_terminal() -> bool:
    """Whether a person watches stderr: bars that move would fill a log file."""
    return sys.stderr.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"


@contextmanager
def shown(*, quiet: bool = False) -> Iterator[Listener]:
    """A listener for as long as the body runs."""
    if quiet or not is_terminal():
        yield partial(_lines, quiet=quiet)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield _Bars(progress)


def finding_line(finding: Finding) -> str:
    """A finding as a line, and its hint as another."""
    place = f"{finding.where}: " if finding.where else ""
    entry = f" ({finding.entry_point})" if finding.entry_point else ""
    hint = f"\n  hint: {finding.hint}" if finding.hint else ""
    return f"{finding.severity}[{finding.code}]: {place}{finding.message}{entry}{hint}"


def _lines(event: Event, *, quiet: bool) -> None:
    """Print an event as a line; with `quiet`, warnings and nothing else."""
    match event:
        case Finding() if not quiet or event.severity == "warning":
            text.say(finding_line(event))
        case Remark(message=message):
            text.say(f"warning: {message}")
        case StageStarted() if not quiet:
            text.say(f"{f'{event.stage} {event.target}'.strip():<28} ...")
        case StageFinished() if not quiet:
            how = "failed" if event.failed else "cached" if event.cached else duration(event.wall_s)
            text.say(f"{f'{event.stage} {event.target}'.strip():<28} {how}")
        case _:
            pass


class _Bars:
    """One bar per stage; the note beside it names the targets under way."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.tasks: dict[Stage, TaskID] = {}
        self.totals: dict[Stage, int] = {}
        self.running: dict[Stage, list[str]] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case Planned(totals=totals):
                self.totals.update(totals)
                for stage in totals.keys() & self.tasks.keys():
                    self.progress.update(self.tasks[stage], total=totals[stage])
            case StageStarted(stage=stage, target=target):
                if stage not in self.tasks:
                    self.tasks[stage] = self.progress.add_task(
                        stage, total=self.totals.get(stage, 1), note=""
                    )
                self.running.setdefault(stage, []).append(target)
                self._note(stage, "")
            case StageFinished(stage=stage, target=target):
                self.running[stage].remove(target)
                self.progress.advance(self.tasks[stage])
                outcome = "failed" if event.failed else "cached" if event.cached else ""
                self._note(stage, f"{target} {outcome}".strip() if outcome else "")
            case Finding():
                self.progress.console.print(finding_line(event), markup=False, highlight=False)
            case Remark(message=message):
                self.progress.console.print(f"warning: {message}", markup=False, highlight=False)
            case _:
                assert_never(event)

    def _note(self, stage: Stage, outcome: str) -> None:
        names = ", ".join(filter(None, self.running[stage]))
        self.progress.update(self.tasks[stage], note=names or outcome)
