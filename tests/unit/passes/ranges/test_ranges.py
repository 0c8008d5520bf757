"""The law of ranges: no value lies outside its interval, whatever the program and its inputs are."""

from __future__ import annotations

import logging
import operator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aotpipe.passes.ranges.intervals import Interval
from tests.unit.passes.legal import exported, model
from tests.unit.passes.ranges.programs import Program, aten

SHAPE = (2, 3)
NUMBERS = st.integers(-6, 9)
POSITIVE = st.integers(1, 7)


def _rest(program: Program, x: torch.fx.Node, n: int, mode: str) -> torch.fx.Node:
    """A remainder as a table without one writes it."""
    by = program.call(aten.full.default, [], n, dtype=torch.int64)
    whole = program.call(aten.div.Tensor_mode, x, by, rounding_mode=mode)
    return program.call(aten.sub.Tensor, x, program.call(aten.mul.Tensor, whole, by))


# Each entry makes one op of nodes that are there already, drawn with `pick`, and of numbers.
UNARY = {
    "neg": aten.neg.default,
    "abs": aten.abs.default,
    "view": lambda program, x: program.call(aten.view.default, x, [3, 2]),
    "cumsum": lambda program, x: program.call(aten.cumsum.default, x, 0),
    "sum": lambda program, x: program.call(aten.sum.dim_IntList, x, [1], True),
    "amax": lambda program, x: program.call(aten.amax.default, x, [0], True),
    "amin": lambda program, x: program.call(aten.amin.default, x, [1], True),
    "argmax": lambda program, x: program.call(aten.argmax.default, x, 1, True),
    "flip": lambda program, x: program.call(aten.flip.default, x, [0]),
    "slice": lambda program, x: program.call(aten.slice.Tensor, x, 1, 1, 2),
    "tril": aten.tril.default,
    "bool": lambda program, x: program.call(aten._to_copy.default, x, dtype=torch.bool),
    "int8": lambda program, x: program.call(aten._to_copy.default, x, dtype=torch.int8),
    "float": lambda program, x: program.call(aten._to_copy.default, x, dtype=torch.float32),
    "pad": lambda program, x: program.call(aten.constant_pad_nd.default, x, [1, 0], 5),
    "topk": lambda program, x: program.call(operator.getitem, program.call(aten.topk.default, x, 1, 0), 1),
    "any": aten.any.default,
}
BINARY = {
    "add": aten.add.Tensor,
    "sub": aten.sub.Tensor,
    "mul": aten.mul.Tensor,
    "maximum": aten.maximum.default,
    "minimum": aten.minimum.default,
    "remainder": aten.remainder.Tensor,
    "fmod": aten.fmod.Tensor,
    "floor_divide": aten.floor_divide.default,
    "bitwise_and": aten.bitwise_and.Tensor,
    "bitwise_or": aten.bitwise_or.Tensor,
    "lt": aten.lt.Tensor,
    "ge": aten.ge.Tensor,
    "eq": aten.eq.Tensor,
    "ne": aten.ne.Tensor,
    "logical_and": aten.logical_and.default,
    "logical_or": aten.logical_or.default,
}
WITH_NUMBER = {
    "add": aten.add.Tensor,
    "mul": aten.mul.Tensor,
    "rsub": aten.rsub.Scalar,
    "remainder": aten.remainder.Scalar,
    "fmod": aten.fmod.Scalar,
    "clamp_min": aten.clamp_min.default,
    "clamp_max": aten.clamp_max.default,
    "le": aten.le.Scalar,
    "gt": aten.gt.Scalar,
    "div_floor": lambda program, x, n: program.call(aten.div.Tensor_mode, x, n, rounding_mode="floor"),
    "div_trunc": lambda program, x, n: program.call(aten.div.Tensor_mode, x, n, rounding_mode="trunc"),
    "rest": lambda program, x, n: _rest(program, x, n, "floor"),
    "signed-rest": lambda program, x, n: _rest(program, x, n, "trunc"),
    "alpha": lambda program, x, n: program.call(aten.sub.Tensor, x, x, alpha=n),
    "full": lambda program, x, n: program.call(aten.full.default, [2, 3], n, dtype=torch.int64),
    "masked_fill": lambda program, x, n: program.call(
        aten.masked_fill.Scalar, x, program.call(aten.gt.Scalar, x, 1), n
    ),
    "where": lambda program, x, n: program.call(
        aten.where.self,
        program.call(aten.lt.Scalar, x, n),
        program.call(aten.add.Tensor, x, n),
        program.call(aten.neg.default, x),
    ),
    "where-of-two": lambda program, x, n: program.call(
        aten.where.self,
        program.call(
            aten.logical_and.default, program.call(aten.ge.Scalar, x, 0), program.call(aten.lt.Scalar, x, n)
        ),
        x,
        program.call(aten.full.default, [], 0, dtype=torch.int64),
    ),
}


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch logs every op that refuses a dtype, as many do here."""
    monkeypatch.setattr(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)


def _apply(program: Program, make: Any, *args: Any) -> torch.fx.Node | None:
    try:
        node: torch.fx.Node = program.call(make, *args) if hasattr(make, "_schema") else make(program, *args)
    except (RuntimeError, TypeError, NotImplementedError, IndexError, ValueError):
        # The op does not take this dtype or shape.
        for left in program.module.graph.nodes:
            if left.op == "call_function" and "val" not in left.meta:
                program.module.graph.erase_node(left)
        return None
    return node


@st.composite
def programs(draw: st.DrawFn) -> tuple[Program, list[torch.Tensor]]:
    program, values = Program(), []
    for _ in range(draw(st.integers(1, 2))):
        low, high = sorted((draw(NUMBERS), draw(NUMBERS)))
        program.input(SHAPE, (low, high))
        elements = draw(st.lists(st.integers(low, high), min_size=6, max_size=6))
        values.append(torch.tensor(elements).reshape(SHAPE))
    nodes = list(program.inputs)
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(("unary", "binary", "number")))
        left, right = draw(st.sampled_from(nodes)), draw(st.sampled_from(nodes))
        if kind == "unary":
            made = _apply(program, UNARY[draw(st.sampled_from(sorted(UNARY)))], left)
        elif kind == "binary":
            shapes = [left.meta["val"].shape, right.meta["val"].shape]
            if not all(a == b or 1 in (a, b) for a, b in zip(*map(reversed, shapes), strict=False)):
                continue
            made = _apply(program, BINARY[draw(st.sampled_from(sorted(BINARY)))], left, right)
        else:
            number = draw(POSITIVE)
            made = _apply(program, WITH_NUMBER[draw(st.sampled_from(sorted(WITH_NUMBER)))], left, number)
        if made is not None and isinstance(made.meta["val"], torch.Tensor):
            nodes.append(made)
    return program, values


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(programs())
def test_no_value_lies_outside_its_interval(made: tuple[Program, list[torch.Tensor]]) -> None:
    program, values = made
    try:
        found = program.run(values)
    except (RuntimeError, ZeroDivisionError):
        return
    ranges = program.ranges()
    for node, value in found.items():
        interval = ranges.of(node)
        if isinstance(value, torch.Tensor) and value.numel():
            low, high = value.min().item(), value.max().item()
            assert interval.low is None or interval.low <= low, (node, node.args, interval, low)
            assert interval.high is None or high <= interval.high, (node, node.args, interval, high)


def _interval(make: Any, *bounds: tuple[int, int]) -> Interval:
    program = Program()
    inputs = [program.input(SHAPE, one) for one in bounds]
    return program.ranges().of(make(program, *inputs))


@pytest.mark.parametrize(
    ("make", "bounds", "wanted"),
    [
        (lambda p, x: p.call(aten.remainder.Scalar, x, 5), (-9, 9), (0, 4)),
        (lambda p, x: p.call(aten.remainder.Scalar, x, 10), (2, 9), (2, 9)),
        (lambda p, x: _rest(p, x, 5, "floor"), (-9, 9), (0, 4)),
        (lambda p, x: _rest(p, x, 5, "trunc"), (-9, 9), (-4, 4)),
        (lambda p, x: p.call(aten.clamp.default, x, 0, 4), (-9, 9), (0, 4)),
        (lambda p, x: p.call(aten.clamp.default, x, 5, 4), (-9, 9), (4, 4)),
        (lambda p, x: p.call(aten.cumsum.default, x, 1), (0, 1), (0, 3)),
        (lambda p, x: p.call(aten.bitwise_and.Tensor, x, p.call(aten.abs.default, x)), (-9, 9), (0, 9)),
        (lambda p, x: p.call(aten.div.Tensor_mode, x, 2, rounding_mode="floor"), (-3, 9), (-2, 4)),
        (lambda p, x: p.call(aten.select.int, p.call(aten.nonzero.default, x), 1, 0), (0, 1), (0, 1)),
        (lambda p, x: p.call(aten.select.int, p.call(aten.nonzero.default, x), 1, 1), (0, 1), (0, 2)),
        (lambda p, x: p.call(aten.slice.Tensor, p.call(aten.nonzero.default, x), 1, 0, 1), (0, 1), (0, 1)),
        (
            lambda p, x: p.call(
                aten.where.self, p.call(aten.lt.Scalar, x, 0), p.call(aten.add.Tensor, x, 10), x
            ),
            (-10, 9),
            (0, 9),
        ),
    ],
    ids=(
        "remainder small-remainder rest signed-rest clamp crossed-clamp cumsum and floor rows columns sliced "
        "from-the-end"
    ).split(),
)
def test_tight_intervals(make: Any, bounds: tuple[int, int], wanted: tuple[int, int]) -> None:
    found = _interval(make, bounds)
    assert (found.low, found.high) == wanted


def test_a_fact_of_a_condition_holds_for_the_same_elements_only() -> None:
    def make(program, x):
        flipped = program.call(aten.flip.default, x, [1])
        small = program.call(aten.lt.Scalar, x, 0)
        zero = program.call(aten.full.default, [], 0, dtype=torch.int64)
        return program.call(aten.where.self, small, flipped, zero)

    assert _interval(make, (-9, 9)).high == 9


def test_overflow_says_nothing() -> None:
    big = 2**61

    def doubled(program, x):
        return program.call(aten.mul.Tensor, x, 4)

    assert _interval(doubled, (0, big)).is_open
    assert _interval(lambda program, x: program.call(aten.add.Tensor, x, 1), (0, 5)).high == 6


def test_casts_of_floats() -> None:
    def cast(program, x):
        floats = program.call(aten._to_copy.default, x, dtype=torch.float32)
        halves = program.call(aten.mul.Tensor, floats, 0.5)
        return program.call(aten._to_copy.default, halves, dtype=torch.int64)

    assert (_interval(cast, (0, 9)).low, _interval(cast, (0, 9)).high) == (0, 4)
    program = Program()
    unknown = program.input(SHAPE, dtype=torch.float32)
    clamped = program.call(aten.clamp.default, unknown, 0.0, 3.0)
    # NaN stays NaN in a clamp, and becomes any number in a cast.
    assert program.ranges().of(program.call(aten._to_copy.default, clamped, dtype=torch.int64)).is_open


def test_a_dtype_bounds_what_nothing_else_does() -> None:
    program = Program()
    x = program.input(SHAPE, dtype=torch.int8)
    assert program.ranges().of(x) == Interval(-128, 127)
    wrapped = program.call(aten.mul.Tensor, x, 3)
    assert program.ranges().of(wrapped) == Interval(-128, 127)


def test_a_declared_range_of_floats_bounds_no_index() -> None:
    entry = exported(model(lambda self, x: x + 1), [torch.ones(2)], value_ranges={"x": (0, 1)})
    assert entry.entries[0].signature.tensor_inputs[0].value_range == (0, 1)
    program = Program()
    x = program.input(SHAPE, (0, 1), dtype=torch.float32)
    assert program.ranges().of(x).is_open


def test_a_chain_longer_than_the_stack_of_python_is_gone_through_from_its_start() -> None:
    program = Program()
    node = program.input([1], (0, 9))
    for _ in range(400):
        node = program.call(
            aten.div.Tensor_mode, program.call(aten.add.Tensor, node, 9), 2, rounding_mode="floor"
        )
    assert program.ranges().of(node) == Interval(8, 9)
