"""Plain text for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import click


def echo_json(value: object) -> None:
    """Print one JSON value on stdout."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def say(line: str) -> None:
    """Talk: a line on stderr."""
    click.echo(line, err=True)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned to the left, two spaces apart, under their heads."""
    cells = [list(head), *map(list, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def fields(values: Mapping[str, str]) -> str:
    """One `name  value` a line, values aligned."""
    width = max(map(len, values), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}".rstrip() for name, value in values.items())
