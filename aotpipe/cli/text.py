"""Tables for people, JSON for programs.

A table is in colour and fits the window on a terminal; a file or a pipe gets plain lines of any length.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TextIO

import click

from aotpipe.core.serialization import to_json

if TYPE_CHECKING:
    from rich.table import Table

    from aotpipe.errors import AotpipeError

_STYLES: Final = {
    **dict.fromkeys(("executed", "passed"), "green"),
    **dict.fromkeys(("compiled", "unproven"), "yellow"),
    "failed": "red",
    "–": "dim",
}
"""By what a cell says."""
_UNLIMITED: Final = 1 << 16
_STDOUT: Final[ContextVar[TextIO | None]] = ContextVar("stdout", default=None)


def echo_json(value: object) -> None:
    """Print one JSON value on stdout."""
    echo(json.dumps(to_json(value), indent=2, allow_nan=False))


def echo(line: str, *, nl: bool = True) -> None:
    """Print data: on the stdout that this process began with."""
    click.echo(line, file=stdout(), nl=nl)


def stdout() -> TextIO:
    """Where data goes."""
    return _STDOUT.get() or sys.stdout


@contextmanager
def own_stdout() -> Iterator[None]:
    """In the body `take_stdout` may be called; after it Python's stdout is what it was."""
    before, token = sys.stdout, _STDOUT.set(sys.stdout)
    try:
        yield
    finally:
        if stdout() is before:  # else the process is at its end
            sys.stdout = before
        _STDOUT.reset(token)


def take_stdout() -> None:
    """Keep stdout for data: what a model writes there, from Python, C or another process, goes to stderr."""
    if (stream := _STDOUT.get()) is None:
        return
    with suppress(OSError, ValueError, AttributeError):  # closed, or no file of the system's
        if stream.fileno() == 1:
            stream.flush()
            stream = os.fdopen(os.dup(1), "w", encoding=stream.encoding, errors=stream.errors)
            os.dup2(2, 1)
    _STDOUT.set(stream)
    sys.stdout = sys.stderr


def show(value: object, to_text: Callable[[], str], *, as_json: bool) -> None:
    """Print what a command found on stdout: as one JSON value, or as text for people."""
    if as_json:
        echo_json(value)
    else:
        echo(to_text())


def annotate(error: AotpipeError) -> None:
    """Show an error beside the user's line, where this is a step of GitHub Actions."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        from aotpipe.build.formats.github import annotation
        from aotpipe.build.report import Failure, Report

        report = Report(name="", bundle="", failure=Failure.of(error))
        for problem in report.problems:
            say(annotation(problem))


def say(line: str) -> None:
    """Print a line for people on stderr."""
    click.echo(line, err=True)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns aligned to the left, two spaces apart, under their heads; for stdout."""
    from rich.table import Column, Table

    columns = (Column(name, overflow="fold") for name in head)
    return _rendered(Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0)), rows)


def fields(values: Mapping[str, str]) -> str:
    """One `name  value` a line, values aligned; for stdout."""
    from rich.table import Column, Table

    columns = (Column(no_wrap=True, style="bold"), Column(overflow="fold"))
    return _rendered(Table.grid(*columns, padding=(0, 2, 0, 0)), values.items())


def _rendered(grid: Table, rows: Iterable[Sequence[str]]) -> str:
    from rich.console import Console
    from rich.text import Text

    for row in rows:
        grid.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    console = Console(file=stdout(), width=None if stdout().isatty() else _UNLIMITED)
    with console.capture() as captured:
        console.print(grid)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
