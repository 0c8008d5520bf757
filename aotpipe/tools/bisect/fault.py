"""Searches for the op whose value is wrong while all that it is computed from is right; what was found.

A trial makes a program that gives some values besides, and says which of them are wrong. Making a value a
result changes how a compiler fuses ops, so a trial may make the fault go away: what cures it is noted, and
not asked for again, as is what no program gives. Torch-free.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from aotpipe.core.dtypes import Array
from aotpipe.core.serialization import ELSEWHERE, Serializable
from aotpipe.core.stages import Lowered, ParityCase
from aotpipe.errors import SourceLine
from aotpipe.runtime.store import typed_os_errors
from aotpipe.runtime.xla import container


@dataclass(frozen=True, slots=True)
class GraphValue:
    """A value of the graph: its name, the op that gives it, and the user's line."""

    name: str
    op: str
    where: SourceLine | None

    def __str__(self) -> str:
        return f"{self.op} (`{self.name}`)" + (f" at {self.where}" if self.where else "")

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"name": self.name, "op": self.op, "where": str(self.where) if self.where else None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproducer:
    """A program that is wrong, what it is called with, and what it must answer."""

    lowered: Lowered
    flags: tuple[str, ...]
    inputs: Mapping[str, Array]
    weights: Mapping[str, Array]
    wanted: Mapping[str, Array]

    def save(self, folder: Path) -> None:
        """Write `module.mlir`, `flags.json`, `inputs.npz`, `weights.npz` and `wanted.npz`.

        Raises:
            ReadOnly, DiskFull, StoreError: They cannot be written.
        """
        with typed_os_errors("the reproducer", folder):
            folder.mkdir(parents=True, exist_ok=True)
            suffix = "xla" if container.is_one(self.lowered.module) else "mlir"
            (folder / f"module.{suffix}").write_bytes(self.lowered.module)
            (folder / "flags.json").write_text(json.dumps(self.flags, indent=2) + "\n", encoding="utf-8")
            for name in ("inputs", "weights", "wanted"):
                # numpy alone reads its own dtypes: bfloat16 and its kin are written as their bytes.
                arrays: dict[str, Any] = {
                    key: array if array.dtype.isbuiltin else array.view(f"u{array.dtype.itemsize}")
                    for key, array in getattr(self, name).items()
                }
                np.savez(folder / f"{name}.npz", **arrays)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Serializable):
    """An op whose value is wrong though all that it is computed from is right.

    Attributes:
        failed: The comparison of the model's output that the search began at.
        case: How wrong its value is in the model's program.
        operands: What it takes, as the signature of a program of its own.
        alone: How wrong it is there; None where it is right, or makes no program.
        cures: Values that, given as results too, make the numbers right: the fault lies in fusing the op
            with these.
        programs: How many were compiled to find it.
        reproducer: The op alone where that is wrong, else the graph up to it.
    """

    target: str
    failed: ParityCase
    place: GraphValue
    case: ParityCase
    operands: tuple[str, ...]
    alone: ParityCase | None
    cures: tuple[GraphValue, ...]
    programs: int
    reproducer: Reproducer = field(metadata=ELSEWHERE)


WIDTH: Final = 24
"""How many values a trial gives at most, besides the one that is known to be wrong."""

Trial = Callable[[Sequence[str]], Mapping[str, bool] | None]
"""From values to whether each is wrong; None where no program could be made."""


@dataclass(slots=True)
class Search:
    """A search under way, and what it came to.

    Attributes:
        right: Values that are known to be right.
        passed: Values that are not asked for again, and whether each cures the fault.
    """

    order: Sequence[str]
    parents: Mapping[str, Sequence[str]]
    trial: Trial
    culprit: str
    right: set[str] = field(default_factory=set)
    passed: dict[str, bool] = field(default_factory=dict)
    trials: int = 0

    @property
    def cures(self) -> tuple[str, ...]:
        """Values that, given as results beside the culprit, make it right: the fault lies in fusing them."""
        return tuple(value for value, is_cure in self.passed.items() if is_cure)

    def suspects(self) -> list[str]:
        """What the culprit comes from, up to values that are known to be right, in order."""
        seen: set[str] = set()
        waiting = [self.culprit]
        while waiting:
            for parent in self.parents[waiting.pop()]:
                if parent not in seen and parent not in self.right:
                    seen.add(parent)
                    waiting.append(parent)
        return [value for value in self.order if value in seen and value not in self.passed]

    def step(self, asked: Sequence[str]) -> str | None:
        """Ask for some values beside the culprit; the first of them that is wrong, None where none is."""
        self.trials += 1
        verdict = self.trial([*asked, self.culprit])
        if verdict is None or not (verdict[self.culprit] or any(verdict[value] for value in asked)):
            # There is no such program, or the fault went away.
            if len(asked) == 1:
                self.passed[asked[0]] = verdict is not None
                return None
            half = len(asked) // 2
            first = self.step(asked[:half])
            return first if first is not None else self.step(asked[half:])
        for value in asked:
            if verdict[value]:
                return value
            self.right.add(value)
        return None


def search(
    order: Sequence[str],
    parents: Mapping[str, Sequence[str]],
    wrong: str,
    trial: Trial,
    *,
    width: int = WIDTH,
) -> Search:
    """Go back from a wrong value to the first one.

    In `order` each value comes after its `parents`, what it is computed from. A trial gives at most `width`
    values.
    """
    found = Search(order, parents, trial, culprit=wrong)
    while suspects := found.suspects():
        count = min(width, len(suspects))
        # Evenly apart; the last is among them.
        asked = [suspects[(number + 1) * len(suspects) // count - 1] for number in range(count)]
        first = found.step(asked)
        found.culprit = found.culprit if first is None else first
    return found
