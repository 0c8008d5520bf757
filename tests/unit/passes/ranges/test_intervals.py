"""Laws of intervals and of what is certain over sizes."""

from __future__ import annotations

import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.passes.ranges.intervals import ANY, Interval, Space, add, negative, of_dtype, scaled

ROWS = sympy.Symbol("s0", integer=True)
SIZES = {ROWS: (1, 64)}
SPACE = Space(lambda symbol: SIZES.get(symbol, (None, None)))
ends = st.none() | st.integers(-50, 50)


@st.composite
def intervals(draw: st.DrawFn) -> tuple[Interval, int]:
    """An interval and a number in it."""
    number = draw(st.integers(-50, 50))
    low = draw(st.none() | st.integers(-60, number))
    high = draw(st.none() | st.integers(number, 60))
    return Interval(low, high), number


def _holds(one: Interval, number: int) -> bool:
    return (one.low is None or one.low <= number) and (one.high is None or number <= one.high)


@given(intervals(), intervals(), st.integers(0, 5))
def test_what_is_combined_holds_what_is_combined(
    left: tuple[Interval, int], right: tuple[Interval, int], factor: int
) -> None:
    (one, a), (other, b) = left, right
    assert _holds(add(one, other), a + b)
    assert _holds(negative(one), -a)
    assert _holds(scaled(one, factor), a * factor)
    union = SPACE.union(one, other)
    assert _holds(union, a)
    assert _holds(union, b)
    if _holds(other, a):
        assert _holds(SPACE.intersection(one, other), a)


@given(st.integers(-70, 70), st.integers(-70, 70), st.integers(1, 64))
def test_what_is_certain_is_so_for_every_size(shift: int, number: int, rows: int) -> None:
    for small, large in ((ROWS + shift, number), (number, ROWS + shift), (2 * ROWS, ROWS + shift)):
        if SPACE.le(small, large):
            at = {ROWS: rows}
            assert sympy.sympify(small).subs(at) <= sympy.sympify(large).subs(at)


def test_what_can_be_said_of_sizes() -> None:
    assert SPACE.le(ROWS - 1, ROWS - 1)
    assert SPACE.lt(ROWS - 1, ROWS)
    assert SPACE.le(ROWS, 64)
    assert not SPACE.le(ROWS, 63)
    assert not SPACE.le(sympy.Symbol("u0", integer=True), 10**9)
    assert not SPACE.le(None, 5)
    assert SPACE.within(Interval(0, ROWS - 1), 0, ROWS - 1)
    assert not SPACE.within(Interval(0, None), 0, ROWS - 1)
    assert SPACE.ends(3 * ROWS - 2) == (1, 190)


def test_ends_of_unions() -> None:
    assert SPACE.union(Interval(0, ROWS - 1), Interval(0, 0)) == Interval(0, ROWS - 1)
    assert SPACE.union(Interval(0, ROWS - 1), Interval(0, 30)) == Interval(0, 63)
    assert SPACE.union(Interval(0, 5), ANY) == ANY


def test_of_dtypes() -> None:
    assert of_dtype(torch.bool) == Interval(0, 1)
    assert of_dtype(torch.uint8) == Interval(0, 255)
    assert of_dtype(torch.int64) == ANY
    assert of_dtype(torch.float32) == ANY
