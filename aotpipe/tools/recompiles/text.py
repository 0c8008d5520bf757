"""A `Recompiles` for people: for each way the number of programs, and a row for each that was made anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from aotpipe.tools.recompiles.results import Program, Recompiles, Way

_HEAD: Final = ("calls", "programs", "line", "value", "reason")
_LONGEST: Final = 100


def render(found: Recompiles) -> str:
    """The whole text."""
    return "\n\n".join("\n".join(_lines(way, len(found.calls))) for way in found.ways)


def _lines(way: Way, calls: int) -> Iterator[str]:
    if way.error is not None and not way.so_far:
        yield f"{way.name}: no program"
        yield from str(way.error).splitlines()
        return
    yield f"{way.name}: {way.count} program{'' if way.count == 1 else 's'} for {calls} calls{_parity(way)}"
    if way.programs:
        yield from _table([_HEAD, *map(_row, way.programs)])
    yield from (f"  call {each.call} is refused: {_short(each.reason)}" for each in way.refused)
    yield from (f"  note: {note}" for note in way.notes)
    if way.error is not None:
        yield from str(way.error).splitlines()


def _parity(way: Way) -> str:
    if not way.compared or way.error is not None:
        return ""
    return f", {way.compared} answers at parity with eager (at most {way.ratio:.0%} of the allowed error)"


def _row(program: Program) -> tuple[str, ...]:
    where = str(program.where) if program.where else ""
    return (str(program.call), str(program.number), where, program.value, _short(program.reason))


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for row in rows:
        yield ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
