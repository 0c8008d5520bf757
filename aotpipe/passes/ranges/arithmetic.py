"""Rules of arithmetic.

Whole numbers are exact, and say nothing where they may overflow; floats widen by their rounding, and say
nothing where an infinity or NaN may come in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import torch

from aotpipe.passes import ops
from aotpipe.passes.ranges.intervals import (
    ANY,
    BIT,
    WIDEST,
    Call,
    Interval,
    Rule,
    Space,
    add,
    holds_floats,
    known,
    negative,
    scaled,
)
from aotpipe.passes.scalars import value_of

_DIGITS: Final = {torch.float64: 50, torch.float32: 20, torch.float16: 8, torch.bfloat16: 5}
"""Bits of a result that are right, with room for a rounding or two."""


def exact(call: Call, found: Interval) -> Interval:
    """What an operation gives, given what it would give without rounding and overflow."""
    if found.low is None or found.high is None:
        return ANY
    numbers = call.space.numeric(found)
    if not call.is_float:
        large = (isinstance(end, int) and abs(end) >= WIDEST for end in (found.low, found.high))
        return ANY if any(large) else found
    if numbers.low is None or numbers.high is None:
        return ANY
    dtype = call.value.dtype if isinstance(call.value, torch.Tensor) else torch.float64
    slack = 2.0 ** -_DIGITS.get(dtype, 2)
    low, high = numbers.low - abs(numbers.low) * slack, numbers.high + abs(numbers.high) * slack
    return Interval(low, high) if max(-low, high) < torch.finfo(dtype).max else ANY


def of_operands(rule: Callable[[Call, Interval, Interval], Interval]) -> Rule:
    """A rule that is told the intervals of the first two operands."""
    return lambda call: rule(call, *(call.of(operand) for operand in call.node.args[:2]))


def plus(call: Call) -> Interval:
    return exact(call, add(call.interval("self"), _scaled(call, call.interval("other"))))


def minus(call: Call) -> Interval:
    if (rest := _rest_of_division(call)) is not None:
        return rest
    return exact(call, add(call.interval("self"), negative(_scaled(call, call.interval("other")))))


def minus_reversed(call: Call) -> Interval:
    return exact(call, add(call.interval("other"), negative(_scaled(call, call.interval("self")))))


def _scaled(call: Call, one: Interval) -> Interval:
    factor = call.arguments.get("alpha", 1)
    return one if factor == 1 else product(call.space, one, call.of(factor))


def times(call: Call) -> Interval:
    return exact(call, product(call.space, call.interval("self"), call.interval("other")))


def product(space: Space, left: Interval, right: Interval) -> Interval:
    """All products of a number of each, without overflow."""
    if left.low is None or left.high is None or right.low is None or right.high is None:
        return ANY
    for one, other in ((left, right), (right, left)):
        if isinstance(one.low, int) and one.low == one.high and one.low >= 0:
            return scaled(other, one.low)
    if space.le(0, left.low) and space.le(0, right.low):
        return Interval(left.low * right.low, left.high * right.high)
    left, right = space.numeric(left), space.numeric(right)
    if left.low is None or left.high is None or right.low is None or right.high is None:
        return ANY
    corners = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
    return Interval(min(corners), max(corners))


def negated(call: Call) -> Interval:
    return exact(call, negative(call.of(call.source)))


def quotient(call: Call, *, mode: str | None = None) -> Interval:
    """Of a division; `mode` where the op has no `rounding_mode` of its own."""
    rounding = call.arguments.get("rounding_mode", mode)
    one, by = (call.space.numeric(call.interval(name)) for name in ("self", "other"))
    if one.low is None or one.high is None or by.low is None or by.low <= 0:
        return ANY
    divisors = [by.low] if by.high is None else [by.low, by.high]
    # A quotient by ever larger numbers approaches zero and keeps its sign.
    limits = [] if by.high is not None else [0, -1 if one.low < 0 else 0]
    if not call.is_float:
        corners = [end // divisor for end in (one.low, one.high) for divisor in divisors] + limits
        # Truncation gives at most one more than the floor.
        return Interval(int(min(corners)), int(max(corners)) + (rounding == "trunc"))
    corners = [end / divisor for end in (one.low, one.high) for divisor in divisors] + limits
    found = exact(call, Interval(min(corners), max(corners)))
    if rounding is None or found.is_open:
        return found
    whole = math.floor if rounding == "floor" else math.trunc
    return Interval(float(whole(found.low)), float(whole(found.high)))  # type: ignore[arg-type]


def _rest_of_division(call: Call) -> Interval | None:
    """Of `x - (x // y) * y`, which is how a remainder of whole numbers is written without one; else None."""
    one, taken = call.arguments["self"], call.arguments["other"]
    if call.is_float or call.arguments.get("alpha", 1) != 1 or ops.name_of(taken) != "mul":
        return None
    whole, by = taken.args
    if ops.name_of(whole) != "div" or whole.args[:2] != (one, by):
        return None
    mode = whole.kwargs.get("rounding_mode")
    if mode not in ("floor", "trunc"):
        return None
    return _rest(call, call.of(one), call.of(by), signed=mode == "trunc")


def remainder(*, signed: bool = False) -> Rule:
    """Of `self % other`, which has the divisor's sign; where `signed` of `fmod`, which has the dividend's."""
    return lambda call: _rest(call, call.interval("self"), call.interval("other"), signed=signed)


def _rest(call: Call, one: Interval, by: Interval, *, signed: bool) -> Interval:
    """What is left of a division of whole numbers by positive ones; `signed` like the dividend or not."""
    if call.is_float or by.high is None or not call.space.le(1, by.low):
        return ANY
    # A number below every divisor is its own remainder.
    if call.space.le(0, one.low) and call.space.lt(one.high, by.low):
        return one
    lowest = 1 - by.high if signed and not call.space.le(0, one.low) else 0
    return Interval(lowest, by.high - 1)


def absolute(call: Call) -> Interval:
    one = call.of(call.source)
    if call.space.le(0, one.low):
        return one
    one = call.space.numeric(one)
    return ANY if one.low is None or one.high is None else Interval(0, max(-one.low, one.high))


def clamped(call: Call) -> Interval:
    """Of `clamp(self, min, max)`; `max` wins."""
    found = call.interval("self")
    if call.arguments.get("min") is not None:
        found = at_least(call, found, call.interval("min"))
    if call.arguments.get("max") is not None:
        found = at_most(call, found, call.interval("max"))
    return found


def at_least(call: Call, one: Interval, other: Interval) -> Interval:
    if call.is_float and (one.is_open or other.is_open):
        return ANY
    both_closed = one.high is not None and other.high is not None
    low = known(call.space.max, one.low, other.low)
    return Interval(low, call.space.max(one.high, other.high) if both_closed else None)


def at_most(call: Call, one: Interval, other: Interval) -> Interval:
    if call.is_float and (one.is_open or other.is_open):
        return ANY
    both_closed = one.low is not None and other.low is not None
    high = known(call.space.min, one.high, other.high)
    return Interval(call.space.min(one.low, other.low) if both_closed else None, high)


def whole(call: Call, *, function: Callable[[float], int]) -> Interval:
    one = call.of(call.source)
    if not call.is_float:
        return one
    one = call.space.numeric(one)
    if one.low is None or one.high is None:
        return ANY
    return Interval(float(function(one.low)), float(function(one.high)))


def cast(call: Call) -> Interval:
    source, one = value_of(call.source), call.of(call.source)
    if value_of(call.node).dtype is torch.bool:
        return one if source.dtype is torch.bool else BIT
    if not holds_floats(source) and not call.is_float:
        return one
    if call.is_float:
        return exact(call, one)
    one = call.space.numeric(one)
    # What a cast makes of NaN, infinity or too large a number depends on the machine.
    if one.low is None or one.high is None:
        return ANY
    return Interval(math.trunc(one.low), math.trunc(one.high))
