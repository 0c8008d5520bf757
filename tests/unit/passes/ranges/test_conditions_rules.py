"""What comparisons and connectives certainly give."""

from __future__ import annotations

import itertools
import operator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.passes.ranges.conditions import OPPOSITE, ORDER
from aotpipe.passes.ranges.intervals import BIT, FALSE, TRUE, Interval, Space
from tests.unit.passes.ranges.programs import Program, aten

INTERVALS = st.tuples(st.integers(-4, 4), st.integers(-4, 4)).map(lambda ends: Interval(*sorted(ends)))
SPACE = Space(lambda _: (None, None))


@given(st.sampled_from(sorted(ORDER)), INTERVALS, INTERVALS)
def test_an_order_is_certain_if_it_holds_for_all(relation: str, left: Interval, right: Interval) -> None:
    pairs = itertools.product(range(left.low, left.high + 1), range(right.low, right.high + 1))
    holds = {getattr(operator, relation)(a, b) for a, b in pairs}
    assert ORDER[relation](SPACE, left, right) is (holds == {True})
    assert ORDER[OPPOSITE[relation]](SPACE, left, right) is (holds == {False})


@pytest.mark.parametrize(
    ("op", "left", "right", "wanted"),
    [
        (aten.logical_and.default, 1, 1, TRUE),
        (aten.logical_and.default, 1, 0, FALSE),
        (aten.logical_and.default, 1, None, BIT),
        (aten.logical_and.default, 0, None, FALSE),
        (aten.logical_or.default, 0, 0, FALSE),
        (aten.logical_or.default, 1, None, TRUE),
        (aten.logical_or.default, 0, None, BIT),
    ],
)
def test_connectives(op: object, left: int, right: int | None, wanted: Interval) -> None:
    program = Program()
    unknown = program.input(())
    sides = [
        unknown if side is None else program.call(aten.full.default, [], side, dtype=torch.int64)
        for side in (left, right)
    ]
    flags = [program.call(aten.ne.Scalar, side, 0) for side in sides]
    assert program.ranges().of(program.call(op, *flags)) == wanted


def test_not_and_all() -> None:
    program = Program()
    x = program.input((3,), (2, 5))
    certain = program.call(aten.gt.Scalar, x, 1)
    ranges = program.ranges()
    assert ranges.of(certain) == TRUE
    assert program.ranges().of(program.call(aten.logical_not.default, certain)) == FALSE
    assert program.ranges().of(program.call(aten.all.default, certain)) == TRUE


@pytest.mark.parametrize(
    ("op", "number", "wanted"),
    [
        (aten.lt.Scalar, 7.0, TRUE),
        (aten.ne.Scalar, 7.0, TRUE),
        (aten.ge.Scalar, 7.0, FALSE),
        (aten.gt.Scalar, 1.0, TRUE),
        (aten.eq.Scalar, 1.0, FALSE),
        (aten.gt.Scalar, 3.0, BIT),
        (aten.le.Scalar, 5.0, BIT),
    ],
)
def test_floats_with_bounds(op: object, number: float, wanted: Interval) -> None:
    program = Program()
    floats = program.call(aten._to_copy.default, program.input((3,), (2, 5)), dtype=torch.float32)
    unknown = program.call(aten.sqrt.default, floats)
    compared = program.call(op, floats, number), program.call(op, unknown, number)
    ranges = program.ranges()
    assert [ranges.of(each) for each in compared] == [wanted, BIT]
