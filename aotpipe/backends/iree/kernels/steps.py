"""Elementwise steps on the sums of a convolution, before they are stored.

Each step is the name of an op and its operands: `v0` are the sums and `v1` what the first step gives, `c0` is
a number for each output, `i0` one for each number of the result, and else a number is meant. The last step
gives the result. They are emitted on vectors in a kernel, and on single numbers elsewhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

_TWO: Final = {
    "add": "arith.addf",
    "sub": "arith.subf",
    "mul": "arith.mulf",
    "div": "arith.divf",
    "maximum": "arith.maximumf",
    "minimum": "arith.minimumf",
}
_ONE: Final = {
    "neg": "arith.negf",
    "abs": "math.absf",
    "exp": "math.exp",
    "expm1": "math.expm1",
    "tanh": "math.tanh",
    "erf": "math.erf",
}
_COMPARE: Final = {"lt": "olt", "gt": "ogt", "le": "ole", "ge": "oge"}
_LARGEST: Final = 3.4028234663852886e38
"""The largest float32: no larger number has a constant of this type."""

Operand = str | float


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    op: str
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """Some steps, and how many operands of each kind they have.

    Attributes:
        channels: Operands with a number for each output.
        images: Operands with a number for each number of the result.
    """

    each: tuple[Step, ...] = ()
    channels: int = 0
    images: int = 0

    @classmethod
    def parse(cls, text: str, channels: int, images: int) -> Steps:
        """Read what `str` gives."""
        return cls(tuple(Step(op, tuple(operands)) for op, *operands in json.loads(text)), channels, images)

    def __str__(self) -> str:
        return json.dumps([[step.op, *step.operands] for step in self.each])


def is_number(value: object) -> bool:
    """Whether a step may have it as an operand."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def emitted(
    steps: Steps, names: dict[str, str], kind: str, element: str, prefix: str
) -> tuple[list[str], str]:
    """The lines of some steps on values of a type, and the name of the last one's result.

    Args:
        steps: The steps.
        names: The names of `v0`, `c0`, `i0` and so on.
        kind: The type of the values: `f32`, or `vector<16xf32>`.
        element: The type of one number.
        prefix: What the names of the new values begin with.
    """
    known, lines = dict(names), []
    bools = kind.replace(element, "i1")

    def constant(value: float, name: str) -> str:
        number = f"{float(value):.17e}"
        lines.append(f"%{name} = arith.constant {number if kind == element else f'dense<{number}>'} : {kind}")
        return f"%{name}"

    last = known["v0"]
    for place, step in enumerate(steps.each):
        operands = [
            known[operand] if isinstance(operand, str) else constant(operand, f"{prefix}n{place}_{at}")
            for at, operand in enumerate(step.operands)
        ]
        last = f"%{prefix}v{place + 1}"
        lines += _emitters(step.op)(last, operands, kind, bools, constant, f"{prefix}t{place}")
        known[f"v{place + 1}"] = last
    return lines, last


def _emitters(op: str) -> Callable[..., Sequence[str]]:
    if op in _TWO or op in _ONE:
        name = _TWO.get(op) or _ONE[op]
        return lambda last, operands, kind, *_: [f"{last} = {name} {', '.join(operands)} : {kind}"]
    if op in _COMPARE:
        return lambda last, operands, kind, *_: [
            f"{last} = arith.cmpf {_COMPARE[op]}, {', '.join(operands)} : {kind}"
        ]
    others: dict[str, Callable[..., list[str]]] = {
        "relu": _relu,
        "leaky_relu": _leaky_relu,
        "gelu": _gelu,
        "sigmoid": _sigmoid,
        "where": _where,
    }
    return others[op]


def _relu(last: str, operands: Sequence[str], kind: str, _: str, constant: Any, prefix: str) -> list[str]:
    zero = constant(0.0, f"{prefix}_zero")
    return [f"{last} = arith.maximumf {operands[0]}, {zero} : {kind}"]


def _leaky_relu(
    last: str, operands: Sequence[str], kind: str, bools: str, constant: Any, prefix: str
) -> list[str]:
    x, slope = operands
    zero = constant(0.0, f"{prefix}_zero")
    return [
        f"%{prefix}_less = arith.mulf {x}, {slope} : {kind}",
        f"%{prefix}_is_more = arith.cmpf ogt, {x}, {zero} : {kind}",
        *_where(last, [f"%{prefix}_is_more", x, f"%{prefix}_less"], kind, bools),
    ]


def _gelu(last: str, operands: Sequence[str], kind: str, _: str, constant: Any, prefix: str) -> list[str]:
    [x] = operands
    one, half = constant(1.0, f"{prefix}_one"), constant(0.5, f"{prefix}_half")
    scale = constant(math.sqrt(0.5), f"{prefix}_scale")
    return [
        f"%{prefix}_scaled = arith.mulf {x}, {scale} : {kind}",
        f"%{prefix}_erf = math.erf %{prefix}_scaled : {kind}",
        f"%{prefix}_sum = arith.addf %{prefix}_erf, {one} : {kind}",
        f"%{prefix}_part = arith.mulf {x}, {half} : {kind}",
        f"{last} = arith.mulf %{prefix}_part, %{prefix}_sum : {kind}",
    ]


def _sigmoid(last: str, operands: Sequence[str], kind: str, _: str, constant: Any, prefix: str) -> list[str]:
    one = constant(1.0, f"{prefix}_one")
    return [
        f"%{prefix}_negative = arith.negf {operands[0]} : {kind}",
        f"%{prefix}_power = math.exp %{prefix}_negative : {kind}",
        f"%{prefix}_sum = arith.addf %{prefix}_power, {one} : {kind}",
        f"{last} = arith.divf {one}, %{prefix}_sum : {kind}",
    ]


def _where(last: str, operands: Sequence[str], kind: str, bools: str, *_: Any) -> list[str]:
    types = f"{bools}, {kind}" if bools != "i1" else kind
    return [f"{last} = arith.select {', '.join(operands)} : {types}"]
