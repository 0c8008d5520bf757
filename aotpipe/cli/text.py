"""Plain text for people: aligned tables, and numbers with units."""

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


def size(size_bytes: int) -> str:
    """Bytes in the unit that people would choose: `17.7 kB`, `91.0 MB`."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    value = float(size_bytes)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.95 or unit == "GB":
            return f"{value:.1f} {unit}"
    raise AssertionError(size_bytes)


def duration(seconds: float) -> str:
    """Seconds as people would say them: `45.2 µs`, `1.30 ms`, `2.5 s`, `3 min 5 s`."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.2f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
