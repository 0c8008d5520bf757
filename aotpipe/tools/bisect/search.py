"""Finds the op whose value is wrong while all that it is computed from is right. Knows no torch.

A trial makes a program that gives some values besides, and says which of them are wrong. Making a value a
result changes how a compiler fuses ops, so a trial may make the fault go away: what cures it is noted, and
not asked for again, as is what no program gives.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

N = TypeVar("N", bound=Hashable)

WIDTH: Final = 24
"""How many values a trial gives at most, besides the one that is known to be wrong."""

Trial = Callable[[Sequence[N]], Mapping[N, bool] | None]
"""From values to whether each is wrong; None where no program could be made."""


@dataclass(frozen=True, slots=True)
class Found(Generic[N]):
    """What a search came to.

    Attributes:
        culprit: The value that is wrong.
        cures: Values that, given as results beside it, make it right: the fault lies in fusing it with these.
        trials: How many programs it took.
    """

    culprit: N
    cures: tuple[N, ...]
    trials: int


@dataclass(slots=True)
class _Search(Generic[N]):
    order: Sequence[N]
    parents: Mapping[N, Sequence[N]]
    trial: Trial[N]
    right: set[N] = field(default_factory=set)
    cures: dict[N, None] = field(default_factory=dict)
    unasked: set[N] = field(default_factory=set)
    trials: int = 0

    def suspects(self, wrong: N) -> list[N]:
        """What a wrong value comes from, up to values that are known to be right, in order."""
        seen: set[N] = set()
        waiting = [wrong]
        while waiting:
            for parent in self.parents[waiting.pop()]:
                if parent not in seen and parent not in self.right:
                    seen.add(parent)
                    waiting.append(parent)
        return [
            value
            for value in self.order
            if value in seen and value not in self.cures and value not in self.unasked
        ]

    def step(self, wrong: N, asked: Sequence[N]) -> N | None:
        """Ask for some values beside a wrong one; the first of them that is wrong, None where none is."""
        self.trials += 1
        verdict = self.trial([*asked, wrong])
        if verdict is None or not (verdict[wrong] or any(verdict[value] for value in asked)):
            # There is no such program, or the fault went away.
            if len(asked) == 1:
                if verdict is None:
                    self.unasked.add(asked[0])
                else:
                    self.cures[asked[0]] = None
                return None
            half = len(asked) // 2
            first = self.step(wrong, asked[:half])
            return first if first is not None else self.step(wrong, asked[half:])
        for value in asked:
            if verdict[value]:
                return value
            self.right.add(value)
        return None


def search(
    order: Sequence[N], parents: Mapping[N, Sequence[N]], wrong: N, trial: Trial[N], *, width: int = WIDTH
) -> Found[N]:
    """Go back from a wrong value to the first one.

    Args:
        order: All values, each after what it is computed from.
        parents: What each is computed from.
        wrong: A value that is wrong.
        trial: Asks a program.
        width: How many values a trial gives at most.
    """
    state = _Search(order, parents, trial)
    while suspects := state.suspects(wrong):
        first = state.step(wrong, _spread(suspects, width))
        wrong = wrong if first is None else first
    return Found(culprit=wrong, cures=tuple(state.cures), trials=state.trials)


def _spread(values: Sequence[N], count: int) -> list[N]:
    """Some of them, evenly apart; the last is among them."""
    if len(values) <= count:
        return list(values)
    return [values[(number + 1) * len(values) // count - 1] for number in range(count)]
