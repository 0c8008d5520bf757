"""Rules of ops that make positions, counts and sizes, or hand on the elements of their operands."""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch.fx import Node

from aotpipe.passes import ops
from aotpipe.passes.ranges.arithmetic import exact, product
from aotpipe.passes.ranges.intervals import ANY, Bound, Call, Interval, Rule, add, as_bound, holds_floats
from aotpipe.passes.scalars import value_of

_NONZERO: Final = torch.ops.aten.nonzero.default
_SORTED: Final = frozenset("sort topk max min cummax cummin kthvalue mode median".split())
_SPLIT: Final = frozenset("split split_with_sizes unbind chunk tensor_split".split())


def same(call: Call) -> Interval:
    return call.of(call.source)


def union_of(*names: str) -> Rule:
    return lambda call: call.space.union(*(call.interval(name) for name in names))


def joined(call: Call) -> Interval:
    return call.space.union(*(call.of(part) for part in call.source))


def scattered(call: Call) -> Interval:
    """Of `scatter` without a reduction."""
    if "reduce" in call.arguments:
        return ANY
    written = "src" if "src" in call.arguments else "value"
    return call.space.union(call.interval("self"), call.interval(written))


def put(call: Call) -> Interval:
    return ANY if call["accumulate"] else union_of("self", "values")(call)


def argument(name: str) -> Rule:
    return lambda call: call.interval(name)


def constant(number: int) -> Rule:
    return lambda _: Interval(number, number)


def arange(call: Call) -> Interval:
    step = call.arguments.get("step", 1)
    if not isinstance(step, int | float) or step == 0:
        return ANY
    start, end = call.of(call.arguments.get("start", 0)), call.interval("end")
    if step < 0:
        return exact(call, Interval(end.low, start.high))
    whole = not any(holds_floats(value_of(call.arguments.get(name))) for name in ("start", "end", "step"))
    last = end.high - 1 if whole and end.high is not None else end.high
    return exact(call, Interval(start.low, last))


def iota(call: Call) -> Interval:
    length, start, step = (call.interval(name) for name in ("length", "start", "step"))
    if length.high is None:
        return ANY
    return exact(call, add(start, product(call.space, Interval(0, length.high - 1), step)))


def position(call: Call) -> Interval:
    """Of ops that give positions along `dim`, or in the flat tensor."""
    return Interval(0, call.size(call.source, call.arguments.get("dim")) - 1)


def place_in(name: str) -> Rule:
    """Of a search: a place among the sorted values, or behind them."""
    return lambda call: Interval(0, call.size(call[name], -1))


def nonzero(call: Call) -> Interval:
    """Of `nonzero`: positions along any of the dims."""
    columns = [_column(call.source, dim) for dim in range(value_of(call.source).dim())]
    return call.space.union(*columns) if columns else Interval(0, 0)


def _column(source: Any, dim: int) -> Interval:
    return Interval(0, as_bound(value_of(source).shape[dim]) - 1)


def selected(call: Call) -> Interval:
    """Of `select`; a column of `nonzero` holds positions along one dim."""
    return _selected(call, call.source, call["dim"], call["index"])


def _selected(call: Call, source: Any, dim: int, index: Any) -> Interval:
    if isinstance(source, Node) and source.target is _NONZERO and dim in (1, -1) and isinstance(index, int):
        return _column(source.args[0], index)
    return call.of(source)


def sliced(call: Call) -> Interval:
    """Of `slice`; one column of `nonzero` holds positions along one dim."""
    start, end = call["start"], call["end"]
    one = isinstance(start, int) and isinstance(end, int) and start >= 0 and end == start + 1
    return _selected(call, call.source, call["dim"], start if one else None)


def taken(call: Call) -> Interval:
    source, index = call.node.args
    name = ops.name_of(source)
    if not isinstance(source, Node) or not isinstance(index, int):
        return ANY
    several = Call(source, call.space, call.of)
    if name == "unbind":
        return _selected(several, several.source, several["dim"], index)
    if name in _SPLIT or (name in _SORTED and index == 0):
        return call.of(several.source)
    if name in _SORTED:
        return Interval(0, several.size(several.source, several.arguments.get("dim", -1)) - 1)
    return ANY


def total(call: Call) -> Interval:
    if call.is_float:
        return ANY
    value, dims = value_of(call.source), call.arguments.get("dim")
    if isinstance(dims, int):
        dims = [dims]
    count: Bound = math.prod([call.size(call.source, dim) for dim in dims or range(value.dim())])
    return exact(call, _summed(call, call.of(call.source), count))


def running_total(call: Call) -> Interval:
    if call.is_float:
        return ANY
    one = call.of(call.source)
    found = _summed(call, one, call.size(call.source, call["dim"]))
    # Each total is at least its first number where none is negative.
    return exact(call, Interval(one.low if call.space.le(0, one.low) else found.low, found.high))


def _summed(call: Call, one: Interval, count: Bound) -> Interval:
    """Of a sum of between none and `count` numbers."""
    if one.low is None or one.high is None:
        return ANY
    low = 0 if call.space.le(0, one.low) else one.low * count
    high = 0 if call.space.le(one.high, 0) else one.high * count
    return Interval(low, high)


def size(call: Call) -> Interval:
    end = as_bound(call.value)
    return Interval(end, end)
