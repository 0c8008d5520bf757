"""Products and rounded results hold every number that two intervals can give."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.passes.ranges.arithmetic import product
from aotpipe.passes.ranges.intervals import ANY, Interval, Space
from tests.unit.passes.ranges.programs import Program, aten

SPACE = Space(lambda _: (None, None))
INTERVALS = st.tuples(st.integers(-9, 9), st.integers(-9, 9)).map(lambda ends: Interval(*sorted(ends)))


@given(INTERVALS, INTERVALS)
def test_a_product_is_tight(left: Interval, right: Interval) -> None:
    found = product(SPACE, left, right)
    all_products = [a * b for a in range(left.low, left.high + 1) for b in range(right.low, right.high + 1)]
    assert (found.low, found.high) == (min(all_products), max(all_products))


def test_an_open_end_says_nothing() -> None:
    assert product(SPACE, Interval(0, None), Interval(0, 3)) == ANY


def test_a_rounded_result_has_room_for_the_rounding() -> None:
    program = Program()
    x = program.input((4,), (1, 7))
    halves = program.call(aten.mul.Tensor, program.call(aten._to_copy.default, x, dtype=torch.float16), 0.1)
    found = program.ranges().of(halves)
    values = torch.arange(1, 8).to(torch.float16) * 0.1
    assert found.low <= values.min().item() < values.max().item() <= found.high
    assert found.high < 0.8
