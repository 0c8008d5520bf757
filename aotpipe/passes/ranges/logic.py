"""Rules of comparisons and connectives: what is certain is a constant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch

from aotpipe.passes.ranges.call import Call, Rule, holds_floats
from aotpipe.passes.ranges.intervals import ANY, BIT, FALSE, TRUE, Interval, Space
from aotpipe.passes.scalars import value_of

Order = Callable[[Space, Interval, Interval], bool]
ORDER: Final[Mapping[str, Order]] = {
    "lt": lambda space, left, right: space.lt(left.high, right.low),
    "le": lambda space, left, right: space.le(left.high, right.low),
    "gt": lambda space, left, right: space.lt(right.high, left.low),
    "ge": lambda space, left, right: space.le(right.high, left.low),
    "eq": lambda space, left, right: space.le(left.high, right.low) and space.le(right.high, left.low),
    "ne": lambda space, left, right: space.lt(left.high, right.low) or space.lt(right.high, left.low),
}
"""When a comparison of whole numbers certainly holds."""
OPPOSITE: Final[Mapping[str, str]] = {
    "lt": "ge",
    "le": "gt",
    "gt": "le",
    "ge": "lt",
    "eq": "ne",
    "ne": "eq",
}


def compared(name: str) -> Rule:
    """Of a comparison."""

    def rule(call: Call) -> Interval:
        sides = call.node.args[:2]
        if any(holds_floats(value_of(side)) for side in sides):
            return BIT
        left, right = (call.of(side) for side in sides)
        if ORDER[name](call.space, left, right):
            return TRUE
        return FALSE if ORDER[OPPOSITE[name]](call.space, left, right) else BIT

    return rule


def both(call: Call) -> Interval:
    """Of `and`, of bools or bit by bit."""
    sides = [call.of(argument) for argument in call.node.args]
    if not _is_bool(call):
        # Bits of a number that is not negative bound the result.
        highs = [side.high for side in sides if call.space.le(0, side.low) and side.high is not None]
        return Interval(0, highs[0]) if highs else ANY
    if all(side == TRUE for side in sides):
        return TRUE
    return FALSE if any(side == FALSE for side in sides) else BIT


def either(call: Call) -> Interval:
    """Of `or`, of bools or bit by bit."""
    sides = [call.of(argument) for argument in call.node.args]
    if not _is_bool(call):
        return ANY
    if any(side == TRUE for side in sides):
        return TRUE
    return FALSE if all(side == FALSE for side in sides) else BIT


def negation(call: Call) -> Interval:
    """Of `not`, of bools or bit by bit."""
    if not _is_bool(call):
        return ANY
    return {TRUE: FALSE, FALSE: TRUE}.get(call.of(call.source), BIT)


def all_of(call: Call) -> Interval:
    """Of a reduction by `and`."""
    return TRUE if call.of(call.source) == TRUE else BIT


def _is_bool(call: Call) -> bool:
    """Whether the result and all operands are bools."""
    values = [call.value, *(value_of(argument) for argument in call.node.args)]
    return all(
        value.dtype is torch.bool
        if isinstance(value, torch.Tensor)
        else isinstance(value, bool | torch.SymBool)
        for value in values
    )
