"""The report as one HTML page that needs nothing but itself. jinja2 is imported by `template`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from aotpipe.build.formats import drawings
from aotpipe.build.report import Report
from aotpipe.core.coverage import Goal
from aotpipe.core.stages import Latency
from aotpipe.core.units import count, duration, share, size

if TYPE_CHECKING:
    import jinja2

_lock: Final = threading.Lock()
_MOST_LINES: Final = 400
Kind = Literal["head", "hunk", "added", "removed", "same"]
_KINDS: Final[Mapping[str, Kind]] = {"@": "hunk", "+": "added", "-": "removed"}


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A line of a user's file, and what of it was to be reached; `text` is empty where the file is gone."""

    number: int
    text: str
    goals: tuple[Goal, ...]


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a unified diff."""

    kind: Kind
    text: str


def render(report: Report) -> str:
    """The report as one HTML page."""
    estimates = [(row.target, each) for row in report.targets for each in row.estimates if each.memory_bytes]
    return template().render(
        report=report,
        verdict=verdict(report),
        estimates=estimates,
        latencies=_by_entry_point(report),
        sources=covered_sources(report),
        sizes=[goal for goal in report.coverage.counted if goal.where is None],
        diff=diff_lines(report.source_diff),
        most_lines=_MOST_LINES,
    )


def verdict(report: Report) -> str:
    """What became of the build, in one sentence."""
    rows = report.targets
    if report.failure is not None:
        return f"The build failed in the stage {report.failure.stage}: {report.failure.message}."
    failed = [row for row in rows if row.failure is not None]
    exceeded = [each for each in report.budgets if not each.passed]
    if failed:
        also = f", and {len(exceeded)} budgets do not hold" if exceeded else ""
        return f"{len(failed)} of {_targets(len(rows))} failed{also}."
    if exceeded:
        return f"No target failed, and {len(exceeded)} of {len(report.budgets)} budgets do not hold."
    executed = sum(row.status == "executed" for row in rows)
    others = sorted({row.status for row in rows} - {"executed"})
    rest = f"; the others are {' or '.join(others)}" if others else ""
    said = f"{executed} of {_targets(len(rows))} ran here and answer as PyTorch does, within the tolerance"
    return f"{said}{rest}."


def _targets(number: int) -> str:
    return f"{number} target" + ("" if number == 1 else "s")


def _by_entry_point(report: Report) -> dict[str, list[tuple[str, Latency]]]:
    found: dict[str, list[tuple[str, Latency]]] = {}
    for row in report.targets:
        for latency in row.latency:
            found.setdefault(latency.entry_point, []).append((row.target, latency))
    return found


def covered_sources(report: Report) -> dict[str, list[SourceRow]]:
    """By file, the lines that have something to be reached, with those between them where they are few."""
    by_line: dict[str, dict[int, list[Goal]]] = {}
    for goal in report.coverage.goals:
        if goal.where is not None:
            by_line.setdefault(goal.where.path, {}).setdefault(goal.where.line, []).append(goal)
    found = {}
    for path, lines in by_line.items():
        try:
            texts = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError):
            texts = []
        first, last = max(1, min(lines) - 2), max(lines) + 2
        whole = bool(texts) and last - first < _MOST_LINES
        numbers = range(first, min(last, len(texts)) + 1) if whole else sorted(lines)
        found[path] = [
            SourceRow(number, texts[number - 1] if number <= len(texts) else "", tuple(lines.get(number, ())))
            for number in numbers
        ]
    return found


def diff_lines(diff: str) -> list[DiffLine]:
    """The lines of a unified diff of one file, each with its kind."""
    lines = diff.splitlines()
    head = [DiffLine("head", line) for line in lines[:2]]
    return head + [DiffLine(_KINDS.get(line[:1], "same"), line) for line in lines[2:]]


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
    environment.globals["draw"] = drawings
    source = resources.files(__package__ or "").joinpath("page.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(source)
