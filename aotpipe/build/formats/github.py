"""What GitHub Actions shows of a report: annotations at the user's lines, and a summary of the step.

Both are written where `GITHUB_ACTIONS` is set, and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from aotpipe.build.report import Problem, Report
from aotpipe.core.stages import Latency
from aotpipe.core.units import duration, share, size
from aotpipe.errors import SourceLine

_LEVELS: Final = {"error": "error", "warning": "warning", "note": "notice"}


def is_here() -> bool:
    """Whether this process is a step of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def commands(report: Report) -> Iterator[str]:
    """A workflow command for each error and warning; GitHub shows ten of each in a step."""
    for problem in report.problems:
        if problem.level != "note":
            yield annotation(problem, report.origin.source)


def annotation(problem: Problem, source: str = "") -> str:
    """One workflow command, at the problem's line, or else at the model's file."""
    where = problem.where or (SourceLine(source, 0) if source else None)
    fields = {"title": f"aotpipe {problem.code}"}
    if where is not None:
        fields["file"] = _relative(where.path)
        if where.line > 0:
            fields["line"] = str(where.line)
    given = ",".join(f"{name}={_escaped(text, within=True)}" for name, text in fields.items())
    return f"::{_LEVELS[problem.level]} {given}::{_escaped(problem.message)}"


def _escaped(text: str, *, within: bool = False) -> str:
    """A text as a workflow command takes it; a property's has two characters more that end it."""
    for char in "%\r\n" + (":," if within else ""):
        text = text.replace(char, f"%{ord(char):02X}")
    return text


def _relative(path: str) -> str:
    """A path as GitHub knows it: below the checkout."""
    root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    try:
        return Path(path).absolute().relative_to(root.absolute()).as_posix()
    except ValueError:
        return path


def add_summary(report: Report) -> None:
    """Append a report to the step's summary; a file that cannot be written is left out."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        with suppress(OSError), Path(path).open("a", encoding="utf-8") as file:
            file.write(summary(report) + "\n")


def summary(report: Report) -> str:
    """A report as Markdown: a verdict, a table of targets, what failed."""
    verdict = "passed" if report.ok else "failed"
    lines = [f"### aotpipe: {_cell(report.name)} {verdict} in {duration(report.wall_s)}", ""]
    if report.targets:
        lines += ["| target | status | parity | of eager | size |", "| --- | --- | --- | --- | --- |"]
        for row in report.targets:
            worst = row.parity.worst if row.parity else None
            cells = (
                row.target,
                row.status,
                share(worst.ratio) if worst else "–",
                _times(row.latency),
                size(row.size_bytes) if row.size_bytes else "–",
            )
            lines.append(f"| {' | '.join(map(_cell, cells))} |")
        lines.append("")
    for problem in report.problems:
        if problem.level != "note":
            place = f"`{problem.where}`: " if problem.where else ""
            first, *rest = problem.message.splitlines() or [""]
            lines.append(f"- **{problem.code}** {place}{_cell(first)}")
            lines += [f"  {_cell(line)}" for line in rest]
    return "\n".join(lines)


def _times(latency: tuple[Latency, ...]) -> str:
    timed = [each for each in latency if "eager" in each.baselines]
    return ", ".join("noisy" if each.noisy else f"×{each.ratios['eager']:.2g}" for each in timed) or "–"


def _cell(text: str) -> str:
    """A text that ends no cell of a table, and is no HTML."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    return escaped.replace("\n", " ")
