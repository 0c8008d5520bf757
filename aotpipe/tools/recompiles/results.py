"""What `recompiles` found, as frozen types: how many programs each way takes for the same calls, and why.

A way is `torch.compile` or one of aotpipe's targets. `str` gives the text for people. Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from aotpipe.core.serialization import fields_of
from aotpipe.errors import AotpipeError, SourceLine, TooManyPrograms

SCHEMA: Final = 1
"""Counts incompatible changes of `Recompiles.to_json`."""
TORCH_COMPILE: Final = "torch.compile"
Cause = Literal["first", "break", "recompile"]
_HEAD: Final = ("calls", "programs", "line", "value", "reason")
_LONGEST: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program that torch.compile made.

    Attributes:
        number: From 1, over all functions.
        cause: `first` of a function, what follows a graph `break`, or a `recompile` since a guard failed.
        where: The line that the guard comes from, or that breaks the graph.
        value: What varied, such as `self.count: 1 -> 2`; empty where torch does not say.
    """

    number: int
    call: int
    function: str
    cause: Cause
    where: SourceLine | None
    value: str
    reason: str
    ops: int

    @property
    def row(self) -> tuple[str, ...]:
        """The cells of a table for people."""
        where = str(self.where) if self.where else ""
        return (str(self.call), str(self.number), where, self.value, shortened(self.reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A call that a way does not answer: its number from 1, and why."""

    call: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to run the calls.

    Attributes:
        name: `torch.compile` or a target.
        so_far: The number of programs after each call.
        programs: Each program of `torch.compile`; a target's are made before the first call.
        compared: How many answers were compared with eager's; none of torch.compile's.
        ratio: The largest share of the allowed error that an element used.
        error: Why there is no program at all.
    """

    name: str
    so_far: tuple[int, ...]
    programs: tuple[Program, ...] = ()
    refused: tuple[Refused, ...] = ()
    compared: int = 0
    ratio: float = 0.0
    notes: tuple[str, ...] = ()
    error: AotpipeError | None = None

    @property
    def count(self) -> int:
        """The number of programs over the whole run."""
        return self.so_far[-1] if self.so_far else 0

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        # JSON has no infinity, which is the share of an answer of another shape.
        ratio = self.ratio if math.isfinite(self.ratio) else None
        return {**fields_of(self), "count": self.count, "ratio": ratio}

    def lines(self, calls: int) -> Iterator[str]:
        """The text for people, of so many calls: a row for each program, and what was refused."""
        if self.error is not None and not self.so_far:
            yield f"{self.name}: no program"
            yield from str(self.error).splitlines()
            return
        parity = ""
        if self.compared and self.error is None:
            share = f"at most {self.ratio:.0%} of the allowed error"
            parity = f", {self.compared} answers at parity with eager ({share})"
        plural = "" if self.count == 1 else "s"
        yield f"{self.name}: {self.count} program{plural} for {calls} calls{parity}"
        rows = [_HEAD, *(each.row for each in self.programs)] if self.programs else []
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            yield f"  {'  '.join(cells)}".rstrip()
        yield from (f"  call {each.call} is refused: {shortened(each.reason)}" for each in self.refused)
        yield from (f"  note: {note}" for note in self.notes)
        if self.error is not None:
            yield from str(self.error).splitlines()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompiles:
    """The programs that each way takes for one sequence of calls; `calls` names them in order."""

    name: str
    calls: tuple[str, ...]
    ways: tuple[Way, ...]
    wall_s: float = 0.0

    def __str__(self) -> str:
        return "\n\n".join("\n".join(way.lines(len(self.calls))) for way in self.ways)

    def to_json(self) -> dict[str, Any]:
        """What `aotpipe recompiles --json` prints."""
        return {"schema": SCHEMA, **fields_of(self)}

    def way(self, name: str) -> Way:
        """The way of that name; raises KeyError."""
        return {way.name: way for way in reversed(self.ways)}[name]

    def require(self, at_most: int | None = None) -> None:
        """Raise if a way has no program, or takes more than `at_most`, or does not answer a call.

        Raises:
            AotpipeError: What kept a target from having a program.
            TooManyPrograms: The first way beyond the limit.
        """
        for way in self.ways:
            if way.error is not None:
                raise way.error
        if at_most is None:
            return
        for way in self.ways:
            if way.count > at_most:
                beyond = next(iter(way.programs[at_most:]), None)
                said = "; ".join(filter(None, (beyond.value, beyond.reason))) if beyond else ""
                raise TooManyPrograms(
                    f"{way.name} takes {way.count} programs for {len(self.calls)} calls, more than {at_most}",
                    reason=f"program {beyond.number} in call {beyond.call}: {said}" if beyond else "",
                    hint="`aotpipe check` says how the model becomes one program",
                    where=beyond.where if beyond else None,
                )
            if way.refused:
                first = way.refused[0]
                raise TooManyPrograms(
                    f"{way.name} does not answer {len(way.refused)} of {len(self.calls)} calls",
                    reason=f"call {first.call}: {first.reason}",
                    hint="give what varies a Dim, or make it a tensor",
                )


def shortened(text: str, most: int = _LONGEST) -> str:
    """A text of at most so many characters; dots stand for the rest."""
    return text if len(text) <= most else text[: most - 3] + "..."
