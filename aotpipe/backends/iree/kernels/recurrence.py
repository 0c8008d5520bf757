"""What a scan of small tensors computes in each trip, as steps on vectors, and in which order a kernel does.

The values of a trip are named: `h0` are the carries, `x0` the rows of the inputs, `c0` vectors and `m0`
matrices that no trip changes, `v0` what the first step gives. Each has a size: how many numbers it has for
one sequence of a batch. A step is an elementwise one (`kernels.steps`), or one of

    slice x, first     some of the numbers of `x`
    concat x, y        their numbers one after another
    spread x           the only number of `x`, as often as wanted
    matmul x, m        `x` by a matrix `[numbers of x, numbers of the result]`
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from aotpipe.backends.iree.kernels.steps import Operand

_RESHAPED: Final = ("slice", "concat", "spread", "matmul")


class Step(NamedTuple):
    """One step; `size` says how many numbers it gives."""

    op: str
    operands: tuple[Operand, ...]
    size: int

    @property
    def is_elementwise(self) -> bool:
        """Whether each number of the result is of the operands' numbers in the same place."""
        return self.op not in _RESHAPED


@dataclass(frozen=True, slots=True)
class Recurrence:
    """The steps of a trip.

    Attributes:
        carries: The size of each carry.
        rows: The size of each input's row.
        vectors: The size of each vector.
        matrices: Rows and columns of each matrix.
        steps: The steps, each after those that it reads.
        following: What the next trip is given as carries.
        outputs: What the scan stacks.
    """

    carries: tuple[int, ...]
    rows: tuple[int, ...]
    vectors: tuple[int, ...]
    matrices: tuple[tuple[int, int], ...]
    steps: tuple[Step, ...]
    following: tuple[Operand, ...]
    outputs: tuple[Operand, ...]

    @classmethod
    def parse(cls, text: str) -> Recurrence:
        """Read what `str` gives."""
        carries, rows, vectors, matrices, steps, following, outputs = json.loads(text)
        return cls(
            tuple(carries),
            tuple(rows),
            tuple(vectors),
            tuple((reduced, columns) for reduced, columns in matrices),
            tuple(Step(op, tuple(operands), size) for op, operands, size in steps),
            tuple(following),
            tuple(outputs),
        )

    def __str__(self) -> str:
        return json.dumps([getattr(self, name) for name in self.__dataclass_fields__])

    def step(self, operand: Operand) -> Step | None:
        """The step that gives a value; None of others."""
        is_step = isinstance(operand, str) and operand.startswith("v")
        return self.steps[int(str(operand)[1:])] if is_step else None

    def size(self, operand: Operand) -> int:
        """How many numbers a value has; a number itself is one."""
        if not isinstance(operand, str):
            return 1
        place = int(operand[1:])
        kind = {"h": self.carries, "x": self.rows, "c": self.vectors}.get(operand[0])
        return self.steps[place].size if kind is None else kind[place]


class Part(NamedTuple):
    """What a stage computes for a memory: the value, and the first place that it is written to."""

    value: Operand
    memory: str
    first: int = 0

    @property
    def is_own(self) -> bool:
        """Whether the memory is the value's own, and not that of a carry, an output or a longer value."""
        return self.memory == self.value


class Stage(NamedTuple):
    """Values of one size that are computed in one loop."""

    size: int
    parts: tuple[Part, ...]


class Products(NamedTuple):
    """Some numbers of a product by a matrix, from `first` on, that a stage sums."""

    step: str
    first: int


def stages(recurrence: Recurrence) -> list[Stage]:
    """The loops of a trip, in their order.

    Memories are named as the values that they hold: `v3` what a later stage reads of a step, `h0` the
    following carry, `y0` an output.
    """
    return _stages(recurrence, _kept(recurrence))


def _stages(recurrence: Recurrence, kept: dict[str, None]) -> list[Stage]:
    levels = _Levels(recurrence, kept)
    found: dict[tuple[int, int], list[Part]] = {}
    for part in _parts(recurrence, kept):
        level = levels.inside(part.value) if part.is_own else levels.of(part.value)
        found.setdefault((level, recurrence.size(part.value)), []).append(part)
    return [Stage(size, tuple(parts)) for (_, size), parts in sorted(found.items(), key=lambda each: each[0])]


def _parts(recurrence: Recurrence, kept: dict[str, None]) -> Iterator[Part]:
    """What the trips put into memory."""

    def of(value: Operand, memory: str, first: int = 0) -> Iterator[Part]:
        step = recurrence.step(value)
        if step is not None and step.op == "concat" and (memory == value or value not in kept):
            for operand in step.operands:
                yield from of(operand, memory, first)
                first += recurrence.size(operand)
        else:
            yield Part(value, memory, first)

    for key in kept:
        yield from of(key, key)
    for letter, values in (("h", recurrence.following), ("y", recurrence.outputs)):
        for place, value in enumerate(values):
            yield from of(value, f"{letter}{place}")


def products(recurrence: Recurrence, stage: Stage, kept: frozenset[str]) -> list[Products]:
    """The products that a stage sums itself, each once."""
    found: dict[Products, None] = {}
    seen: set[tuple[Operand, int, bool]] = set()

    def visit(value: Operand, first: int, *, is_own: bool = False) -> None:
        step = recurrence.step(value)
        if step is None or (value in kept and not is_own) or (value, first, is_own) in seen:
            return
        seen.add((value, first, is_own))
        if step.op == "matmul":
            found[Products(str(value), first)] = None
        elif step.op == "slice":
            visit(step.operands[0], first + int(step.operands[1]))
        elif step.is_elementwise:
            for operand in step.operands:
                visit(operand, first)

    for part in stage.parts:
        visit(part.value, 0, is_own=part.is_own)
    return list(found)


def kept_values(recurrence: Recurrence) -> frozenset[str]:
    """The steps whose results are put into memory, for later stages of the trip."""
    return frozenset(_kept(recurrence))


def _kept(recurrence: Recurrence) -> dict[str, None]:
    """What is read number by number or in another place than it is computed, and products of two stages."""
    kept: dict[str, None] = {}
    for step in recurrence.steps:
        if step.op in ("matmul", "spread"):
            value, _ = source(recurrence, step.operands[0])
            if recurrence.step(value) is not None:
                kept[str(value)] = None
    for place, step in enumerate(recurrence.steps):
        read = [operand for operand in step.operands if step.op != "concat"]
        kept |= {str(each): None for each in read if _is(recurrence, each, "concat")}
        if step.op == "concat" and any(_is(recurrence, each, "concat") for each in step.operands):
            kept[f"v{place}"] = None
    while (more := _summed_twice(recurrence, kept)) is not None:
        kept[more] = None
    return dict(sorted(kept.items(), key=lambda each: int(each[0][1:])))


def _is(recurrence: Recurrence, operand: Operand, op: str) -> bool:
    step = recurrence.step(operand)
    return step is not None and step.op == op


def _summed_twice(recurrence: Recurrence, kept: dict[str, None]) -> str | None:
    """A product whose numbers more than one stage would sum."""
    seen: dict[str, int] = {}
    for place, stage in enumerate(_stages(recurrence, kept)):
        for found in products(recurrence, stage, frozenset(kept)):
            if seen.setdefault(found.step, place) != place:
                return found.step
    return None


def source(recurrence: Recurrence, operand: Operand) -> tuple[Operand, int]:
    """What a value is a slice of, and its first place in that."""
    first = 0
    while (step := recurrence.step(operand)) is not None and step.op == "slice":
        operand, first = step.operands[0], first + int(step.operands[1])
    return operand, first


class _Levels:
    """How many stages come before a value can be computed."""

    def __init__(self, recurrence: Recurrence, kept: dict[str, None]) -> None:
        self._recurrence, self._kept = recurrence, kept
        self._known: dict[str, int] = {}

    def of(self, value: Operand) -> int:
        """The first stage that may read a value."""
        return self.inside(value) + (value in self._kept)

    def inside(self, value: Operand) -> int:
        """The stage that computes a value."""
        step = self._recurrence.step(value)
        if step is None:
            return 0
        if str(value) not in self._known:
            operands = [each for each in step.operands if isinstance(each, str) and each[0] != "m"]
            self._known[str(value)] = max(map(self.of, operands), default=0)
        return self._known[str(value)]
