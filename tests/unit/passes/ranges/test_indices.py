"""Positions, counts and sizes lie in what they index."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

from aotpipe.passes.ranges.intervals import Interval
from tests.unit.passes.ranges.programs import Program, aten


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda p, _: p.call(aten.arange.start_step, 2, 9, 3, dtype=torch.int64), (2, 8)),
        (lambda p, _: p.call(aten.arange.start_step, 9, 2, -3, dtype=torch.int64), (2, 9)),
        (lambda p, x: p.call(aten.argmax.default, x, 1), (0, 2)),
        (lambda p, x: p.call(aten.argmax.default, x), (0, 5)),
        (lambda p, x: p.call(operator.getitem, p.call(aten.topk.default, x, 2, 1), 0), (-3, 7)),
        (lambda p, x: p.call(operator.getitem, p.call(aten.sort.default, x, 0), 1), (0, 1)),
        (lambda p, x: p.call(aten.sum.dim_IntList, x, [1]), (-9, 21)),
        (lambda p, x: p.call(aten.cat.default, [x, p.call(aten.mul.Tensor, x, 2)]), (-6, 14)),
        (lambda p, x: p.call(aten.full_like.default, x, 4), (4, 4)),
        (lambda p, x: p.call(aten.index_put.default, x, [x], x), (-3, 7)),
        (lambda p, x: p.call(aten.index_put.default, x, [x], x, True), (None, None)),
    ],
    ids="arange down argmax flat topk sort sum cat full put accumulate".split(),
)
def test_interval(make: Any, wanted: tuple[int | None, int | None]) -> None:
    program = Program()
    x = program.input((2, 3), (-3, 7))
    assert program.ranges().of(make(program, x)) == Interval(*wanted)


def test_a_place_among_sorted_values_may_be_behind_them() -> None:
    program = Program()
    x, borders = program.input((2, 3)), program.input((4,))
    place = program.call(aten.bucketize.Tensor, x, borders)
    assert program.ranges().of(place) == Interval(0, 4)
