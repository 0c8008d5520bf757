"""What `check` says, as frozen types: diagnostics with their places, what is rewritten, what is kept.

A `Diagnostic` of severity `error` is an obstacle: the model does not become one program as it is. `Checked`
holds all of them, and the rest that a user may want to know before a build. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from aotpipe.core.signature import Signature
from aotpipe.errors import Obstructed, SourceLine
from aotpipe.tools.check.source_ranges import Place
from aotpipe.tools.json_values import fields_of, json_value

Severity = Literal["error", "warning", "note"]
SCHEMA: Final = 1
"""Counts incompatible changes of `Checked.to_json`."""
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a value's history: an expression that it came through, or what it began as."""

    what: str
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A replacement to copy.

    Attributes:
        place: What is replaced.
        replacement: The new source of that place.
        verified: Whether it was executed and gave eager's answers, and the obstacle was gone.
        calls: On how many calls the answers were compared.
    """

    place: Place
    replacement: str
    verified: bool
    calls: int = 0

    @property
    def line(self) -> str:
        """The first line of the place as it reads afterwards."""
        text = self.place.text
        end = text[self.place.end_column - 1 :] if self.place.end_line == self.place.line else ""
        return text[: self.place.column - 1] + self.replacement + end

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {**fields_of(self), "line": self.line}


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One thing that was found.

    Attributes:
        severity: `error` blocks a build.
        code: A stable kebab-case word of `codes.TABLE`.
        message: What was found, on one line.
        reason: Why, where the message does not say it; may have several lines.
        hint: One thing to do.
        where: The user's line; `place` adds the columns where they are known.
        history: Where the value came from, the newest step first.
        fix: A replacement to copy.
        seen: Whether the stages of a build refused the model at this place when they were run.
        entry_point: Empty when it concerns all.
    """

    severity: Severity
    code: str
    message: str
    reason: str = ""
    hint: str = ""
    where: SourceLine | None = None
    place: Place | None = None
    history: tuple[Step, ...] = ()
    fix: Fix | None = None
    seen: bool = False
    entry_point: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Python's control flow that becomes an op of the graph: `if` -> `torch.cond`."""

    what: str
    into: str
    place: Place
    entry_point: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """All that was found about a model.

    Attributes:
        diagnostics: Errors first, then by place.
        rewrites: Complete only where nothing blocks.
        signatures: Per entry point that could be exported; `state` in them is what a runner keeps.
        complete: Whether every stage before the compiler was run to its end: if not, there may be more.
    """

    name: str
    diagnostics: tuple[Diagnostic, ...]
    rewrites: tuple[Rewrite, ...] = ()
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    complete: bool = True
    wall_s: float = 0.0

    @property
    def obstacles(self) -> tuple[Diagnostic, ...]:
        """What blocks a build."""
        return tuple(each for each in self.diagnostics if each.severity == "error")

    @property
    def ok(self) -> bool:
        """Whether the model becomes one program per entry point."""
        return not self.obstacles

    @property
    def exit_code(self) -> int:
        """What `aotpipe check` exits with."""
        return 0 if self.ok else Obstructed.exit_code

    def to_json(self) -> dict[str, Any]:
        """What `aotpipe check --json` prints; docs/check.md has the schema in words."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "ok": self.ok,
            "complete": self.complete,
            "exit_code": self.exit_code,
            "wall_s": self.wall_s,
            "diagnostics": json_value(self.diagnostics),
            "rewrites": json_value(self.rewrites),
            "entry_points": json_value(self.signatures),
        }

    def require(self) -> None:
        """Raise if something blocks.

        Raises:
            Obstructed: Names the first obstacle and how many there are.
        """
        if self.obstacles:
            first, count = self.obstacles[0], len(self.obstacles)
            more = f" (the first of {count} obstacles)" if count > 1 else ""
            raise Obstructed(first.message + more, reason=first.reason, hint=first.hint, where=first.where)
