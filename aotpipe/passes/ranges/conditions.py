"""Comparisons and connectives: what they give, and what their truth says of the numbers that they compare.

A rule gives a constant where the result is certain. `of_condition(condition, truth, sides)` gives an interval
per node: from `lt(i, n)` being true follows that `i` is at most `n - 1`. `sides(node)` gives what is known of
a comparison's sides; comparisons of floats say nothing where they are false, as NaN makes them so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.fx import Node

from aotpipe.passes import ops
from aotpipe.passes.ranges.intervals import ANY, BIT, FALSE, TRUE, Call, Interval, Of, Space, holds_floats
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
OPPOSITE: Final[Mapping[str, str]] = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


def compared(call: Call, *, name: str) -> Interval:
    sides = call.node.args[:2]
    left, right = (call.of(side) for side in sides)
    if any(holds_floats(value_of(side)) for side in sides):
        return _compared_floats(call.space.numeric(left), call.space.numeric(right), name)
    if ORDER[name](call.space, left, right):
        return TRUE
    return FALSE if ORDER[OPPOSITE[name]](call.space, left, right) else BIT


def _compared_floats(left: Interval, right: Interval, name: str) -> Interval:
    """What a comparison of floats gives; an interval with an open end may hold NaN."""
    if left.low is None or left.high is None or right.low is None or right.high is None:
        return BIT
    # A side is rounded to the other's dtype before it is compared.
    slack = 2.0**-4 * max(map(abs, (left.low, left.high, right.low, right.high)))
    if left.high + slack < right.low:
        return TRUE if name in ("lt", "le", "ne") else FALSE
    if right.high + slack < left.low:
        return TRUE if name in ("gt", "ge", "ne") else FALSE
    return BIT


def both(call: Call) -> Interval:
    sides = [call.of(argument) for argument in call.node.args]
    if not _is_bool(call):
        # Bits of a number that is not negative bound the result.
        highs = [side.high for side in sides if call.space.le(0, side.low) and side.high is not None]
        return Interval(0, highs[0]) if highs else ANY
    if all(side == TRUE for side in sides):
        return TRUE
    return FALSE if any(side == FALSE for side in sides) else BIT


def either(call: Call) -> Interval:
    sides = [call.of(argument) for argument in call.node.args]
    if not _is_bool(call):
        return ANY
    if any(side == TRUE for side in sides):
        return TRUE
    return FALSE if all(side == FALSE for side in sides) else BIT


def negation(call: Call) -> Interval:
    if not _is_bool(call):
        return ANY
    return {TRUE: FALSE, FALSE: TRUE}.get(call.of(call.source), BIT)


def all_of(call: Call) -> Interval:
    return TRUE if call.of(call.source) == TRUE else BIT


def _is_bool(call: Call) -> bool:
    values = [call.value, *(value_of(argument) for argument in call.node.args)]
    return all(
        value.dtype is torch.bool
        if isinstance(value, torch.Tensor)
        else isinstance(value, bool | torch.SymBool)
        for value in values
    )


_WHOLE: Final = frozenset({"floor", "ceil", "trunc", "round"})
_AND: Final = frozenset({"logical_and", "bitwise_and"})
_OR: Final = frozenset({"logical_or", "bitwise_or"})
_NOT: Final = frozenset({"logical_not", "bitwise_not"})
_SAME: Final = frozenset({"view", "clone", "_local_scalar_dense"})
Facts = dict[Node, Interval]


def of_condition(condition: Any, truth: bool, sides: Of, space: Space) -> Facts:
    """What follows from a condition being true, or false."""
    if not isinstance(condition, Node):
        return {}
    name = ops.name_of(condition)
    if name in OPPOSITE:
        return _of_comparison(condition, name if truth else OPPOSITE[name], truth, sides)
    if name in _NOT | _SAME:
        return of_condition(condition.args[0], truth != (name in _NOT), sides, space)
    if name in (_AND if truth else _OR):
        left, right = (of_condition(side, truth, sides, space) for side in condition.args)
        return {
            node: space.intersection(left[node], right[node]) if node in left and node in right else found
            for node, found in {**left, **right}.items()
        }
    return {}


def _of_comparison(condition: Node, name: str, truth: bool, sides: Of) -> Facts:
    left, right = condition.args[:2]
    floats = any(holds_floats(value_of(side)) for side in (left, right))
    if floats and not truth:
        return {}
    facts: Facts = {}
    for one, other, relation in ((left, right, name), (right, left, _MIRROR[name])):
        if isinstance(one, Node):
            bounds = sides(other)
            # Of whole numbers `a < b` is `a <= b - 1`, also where they are kept as floats.
            step = 1 if not floats or (is_whole(one) and is_whole(other)) else 0
            found = _bounded(relation, bounds, step)
            if not found.is_open:
                facts[_named(one)] = found
    return facts


_MIRROR: Final[Mapping[str, str]] = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def _bounded(relation: str, other: Interval, step: int) -> Interval:
    low = other.low + step if relation == "gt" and other.low is not None else other.low
    high = other.high - step if relation == "lt" and other.high is not None else other.high
    is_below, is_above = relation in ("le", "eq", "lt"), relation in ("ge", "eq", "gt")
    return Interval(low if is_above else None, high if is_below else None)


def _named(node: Node) -> Node:
    """The node that a fact is about: `item()` of a tensor is the tensor."""
    while ops.name_of(node) == "_local_scalar_dense":
        (source,) = node.args
        assert isinstance(source, Node)
        node = source
    return node


def is_whole(argument: Any) -> bool:
    """Whether an argument holds whole numbers only, be they floats."""
    if not isinstance(argument, Node):
        return isinstance(argument, int) or (isinstance(argument, float) and argument.is_integer())
    value = value_of(argument)
    if not holds_floats(value):
        return True
    name = ops.name_of(argument)
    if name in _WHOLE:
        return True
    if name == "_to_copy":
        return not holds_floats(value_of(argument.args[0]))
    if name in ("add", "sub"):
        return not argument.kwargs and all(map(is_whole, argument.args))
    return name in ("view", "unsqueeze", "expand", "clone") and is_whole(argument.args[0])
