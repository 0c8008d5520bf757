"""What `recompiles` found, as frozen types: how many programs each way takes for the same calls, and why.

A way is `torch.compile` or one of aotpipe's targets. Torch-free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

from aotpipe.core.serialization import fields_of
from aotpipe.errors import AotpipeError, SourceLine, TooManyPrograms

SCHEMA: Final = 1
"""Counts incompatible changes of `Recompiles.to_json`."""
TORCH_COMPILE: Final = "torch.compile"
Cause = Literal["first", "break", "recompile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program that torch.compile made.

    Attributes:
        number: From 1, over all functions.
        call: The number of the call that it was made in, from 1.
        function: The Python function that it is of.
        cause: `first` of a function, what follows a graph `break`, or a `recompile` since a guard failed.
        where: The line that the guard comes from, or that breaks the graph.
        value: What varied, such as `self.count: 1 -> 2`; empty where torch does not say.
        reason: torch's reason, on one line.
        ops: How many ops it computes.
    """

    number: int
    call: int
    function: str
    cause: Cause
    where: SourceLine | None
    value: str
    reason: str
    ops: int


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
        refused: The calls that were not answered.
        compared: How many answers were compared with eager's; none of torch.compile's.
        ratio: The largest share of the allowed error that an element used.
        notes: What a reader should know.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompiles:
    """The programs that each way takes for one sequence of calls; `calls` names them in order."""

    name: str
    calls: tuple[str, ...]
    ways: tuple[Way, ...]
    wall_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """What `aotpipe recompiles --json` prints."""
        return {"schema": SCHEMA, **fields_of(self)}

    def way(self, name: str) -> Way:
        """The way of that name; raises KeyError."""
        found = next((way for way in self.ways if way.name == name), None)
        if found is None:
            raise KeyError(name)
        return found

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
                raise _too_many(way, at_most, len(self.calls))
            if way.refused:
                first = way.refused[0]
                raise TooManyPrograms(
                    f"{way.name} does not answer {len(way.refused)} of {len(self.calls)} calls",
                    reason=f"call {first.call}: {first.reason}",
                    hint="give what varies a Dim, or make it a tensor",
                )


def _too_many(way: Way, at_most: int, calls: int) -> TooManyPrograms:
    beyond = next(iter(way.programs[at_most : at_most + 1]), None)
    said = "; ".join(filter(None, (beyond.value, beyond.reason))) if beyond else ""
    return TooManyPrograms(
        f"{way.name} takes {way.count} programs for {calls} calls, more than {at_most}",
        reason=f"program {beyond.number} in call {beyond.call}: {said}" if beyond else "",
        hint="`aotpipe check` says how the model becomes one program",
        where=beyond.where if beyond else None,
    )
