"""Intervals of numbers whose ends may be symbolic sizes.

An `Interval` says that every element of a tensor lies between `low` and `high`, both included; None is an
open end. Ends are ints, floats, or sympy expressions over sizes. An interval of floats that has an end also
says that no element is NaN. `Space` knows the range of each symbol and tells what is certain for all sizes:
`space.le(a, b)` is true only if `a <= b` whatever the sizes are. A `Rule` gives the interval of a `Call`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import sympy
import torch
from torch.fx import Node
from torch.utils._sympy.functions import Max, Min  # torch's own symbolic sizes are made of these
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from aotpipe.passes import ops
from aotpipe.passes.scalars import value_of

Bound = Any
"""An int, a float, or a sympy expression over sizes."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Both ends included; None is an open end."""

    low: Bound | None = None
    high: Bound | None = None

    @property
    def is_open(self) -> bool:
        """Whether it says nothing."""
        return self.low is None and self.high is None


ANY: Final = Interval()
BIT: Final = Interval(0, 1)
TRUE: Final = Interval(1, 1)
FALSE: Final = Interval(0, 0)

_MAX: Final[Any] = Max
_MIN: Final[Any] = Min
_INTEGERS: Final = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
WIDEST: Final = 2**62
"""No size and no index is as large; a number that is may have overflowed."""


def of_dtype(dtype: torch.dtype) -> Interval:
    """The interval of all values of a dtype."""
    if dtype is torch.bool:
        return BIT
    if dtype in _INTEGERS and dtype is not torch.int64:
        return Interval(torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    return ANY


class Space:
    """What is certain, given the range of every symbol.

    `range_of` gives the lowest and highest value of a symbol, None for an open end.
    """

    def __init__(self, range_of: Callable[[sympy.Symbol], tuple[int | None, int | None]]) -> None:
        self._range_of = range_of

    def ends(self, bound: Bound | None) -> tuple[float | None, float | None]:
        """The lowest and highest number that a bound may be."""
        if bound is None or isinstance(bound, int | float):
            return bound, bound
        ranges = {symbol: ValueRanges(*_infinite(*self._range_of(symbol))) for symbol in bound.free_symbols}
        found = bound_sympy(bound, ranges)
        return _finite(found.lower), _finite(found.upper)

    def le(self, small: Bound | None, large: Bound | None) -> bool:
        """Whether `small <= large` for certain; an open end is never certain."""
        if small is None or large is None:
            return False
        difference = large - small
        lowest, _ = self.ends(difference)
        return lowest is not None and lowest >= 0

    def lt(self, small: Bound | None, large: Bound | None) -> bool:
        """Whether `small < large` for certain, of whole numbers."""
        return large is not None and self.le(small, large - 1)

    def within(self, inner: Interval, low: Bound | None, high: Bound | None) -> bool:
        """Whether an interval certainly lies between two bounds."""
        return (low is None or self.le(low, inner.low)) and (high is None or self.le(inner.high, high))

    def union(self, *intervals: Interval) -> Interval:
        """An interval that holds all of them."""
        low, high = intervals[0].low, intervals[0].high
        for one in intervals[1:]:
            low, high = self._outer(low, one.low, upper=False), self._outer(high, one.high, upper=True)
        return Interval(low, high)

    def intersection(self, left: Interval, right: Interval) -> Interval:
        """An interval that holds what is in both."""
        return Interval(known(self.max, left.low, right.low), known(self.min, left.high, right.high))

    def numeric(self, one: Interval) -> Interval:
        """The same with numbers for ends."""
        return Interval(self.ends(one.low)[0], self.ends(one.high)[1])

    def max(self, left: Bound, right: Bound) -> Bound:
        """The larger of two bounds."""
        if self.le(left, right):
            return right
        return left if self.le(right, left) else _MAX(sympy.sympify(left), sympy.sympify(right))

    def min(self, left: Bound, right: Bound) -> Bound:
        """The smaller of two bounds."""
        if self.le(left, right):
            return left
        return right if self.le(right, left) else _MIN(sympy.sympify(left), sympy.sympify(right))

    def _outer(self, left: Bound | None, right: Bound | None, *, upper: bool) -> Bound | None:
        """The end of a union of two intervals with these lower, or upper, ends."""
        if left is None or right is None:
            return None
        if self.le(left, right):
            return right if upper else left
        if self.le(right, left):
            return left if upper else right
        ends = self.ends(left)[upper], self.ends(right)[upper]
        return None if None in ends else (max if upper else min)(ends)  # type: ignore[type-var]


def add(left: Interval, right: Interval) -> Interval:
    """The interval of sums, without overflow."""
    return Interval(
        None if left.low is None or right.low is None else left.low + right.low,
        None if left.high is None or right.high is None else left.high + right.high,
    )


def scaled(one: Interval, factor: int) -> Interval:
    """The interval of products with a factor that is not negative, without overflow."""
    return Interval(
        None if one.low is None else one.low * factor, None if one.high is None else one.high * factor
    )


def negative(one: Interval) -> Interval:
    """The interval of negatives, without overflow."""
    return Interval(None if one.high is None else -one.high, None if one.low is None else -one.low)


def known(combine: Callable[[Bound, Bound], Bound], left: Bound | None, right: Bound | None) -> Bound | None:
    """Both bounds combined, or the one that there is."""
    if left is None or right is None:
        return right if left is None else left
    return combine(left, right)


def _infinite(low: int | None, high: int | None) -> tuple[Any, Any]:
    return (-_INT_OO if low is None else low, _INT_OO if high is None else high)


def _finite(end: Any) -> float | None:
    """A sympy number as a Python number; None where it is infinite or as large as `WIDEST`."""
    if end in (_INT_OO, -_INT_OO, sympy.oo, -sympy.oo):
        return None
    number = int(end) if end.is_integer else float(end)
    return number if math.isfinite(number) and abs(number) < WIDEST else None


_INT_OO: Final[Any] = ValueRanges.unknown_int().upper


# One call of an op as the rules see it: its arguments by name, and their intervals.

Of = Callable[[Any], Interval]
"""The interval of an argument: a node or a number."""


class Call:
    """One call of an op.

    Attributes:
        value: The fake value of the result.
        arguments: By their name in the op's schema, defaults included.
    """

    def __init__(self, node: Node, space: Space, of: Of) -> None:
        self.node = node
        self.space = space
        self.of = of
        self.value = node.meta.get("val")
        self.arguments = ops.arguments(node)

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def interval(self, name: str) -> Interval:
        """The interval of a named argument."""
        return self.of(self.arguments[name])

    @property
    def source(self) -> Any:
        """The first argument."""
        return self.node.args[0]

    @property
    def is_float(self) -> bool:
        """Whether the result holds floats."""
        return holds_floats(self.value)

    def size(self, argument: Any, dim: int | None) -> Bound:
        """A dim's size, 1 for a 0-d tensor; the number of elements for None."""
        value = value_of(argument)
        if dim is None:
            return as_bound(value.numel())
        return as_bound(value.shape[dim]) if value.dim() else 1


Rule = Callable[[Call], Interval]
"""Gives the interval of a call's result."""


def as_bound(size: Any) -> Bound:
    """A size or number as an interval's end."""
    return size.node.expr if isinstance(size, torch.SymInt) else size


def holds_floats(value: object) -> bool:
    """Whether a value is, or holds, floats or complex numbers."""
    if isinstance(value, torch.Tensor):
        return value.dtype.is_floating_point or value.dtype.is_complex
    return isinstance(value, float | complex | torch.SymFloat)
