"""What the calls that a program was judged on reach of its model: branches, trips, sizes. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from aotpipe.core.serialization import Serializable
from aotpipe.errors import SourceLine

Kind = Literal["branch", "loop", "assert", "size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal(Serializable):
    """One thing that a call can reach.

    Attributes:
        what: As a person says it: `true`, `0 trips`, `batch=64`, `fails`.
        where: The user's line, of a branch, a loop or an assert.
        case: The first call that reached it; empty where none did.
        optional: Whether it does not count: the failing side of an assert, which may hold always.
        reason: Why it was not reached, where that is known.
    """

    derived: ClassVar = ("reached",)

    entry_point: str
    kind: Kind
    what: str
    where: SourceLine | None = None
    case: str = ""
    optional: bool = False
    reason: str = ""

    @property
    def reached(self) -> bool:
        """Whether a call reached it."""
        return bool(self.case)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else f"{self.entry_point}: "
        return place + (self.what if self.kind == "size" else f"{self.kind} {self.what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage(Serializable):
    """All that the calls of a model can reach, and what they did; `notes` say why that is not known."""

    derived: ClassVar = ("reached", "total", "percent")

    goals: tuple[Goal, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def counted(self) -> tuple[Goal, ...]:
        """The goals that count: an optional one does where it was reached."""
        return tuple(goal for goal in self.goals if goal.reached or not goal.optional)

    @property
    def missed(self) -> tuple[Goal, ...]:
        """The goals that count and were not reached."""
        return tuple(goal for goal in self.counted if not goal.reached)

    @property
    def reached(self) -> int:
        """How many goals were reached."""
        return sum(goal.reached for goal in self.counted)

    @property
    def total(self) -> int:
        """How many goals count."""
        return len(self.counted)

    @property
    def percent(self) -> float:
        """The share that was reached; 100 where there is nothing to reach."""
        return 100.0 * self.reached / self.total if self.total else 100.0


UNKNOWN: Final = Coverage(notes=("what the calls reach was not looked at: parts of the model stay Python",))
"""Of a model that was not run op by op."""
