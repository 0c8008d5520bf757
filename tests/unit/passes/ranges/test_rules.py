"""The table of rules: an op that it lacks, and what may overflow, gives what the dtype says."""

from __future__ import annotations

import torch

from aotpipe.passes.ranges.intervals import ANY, BIT, Interval, Space
from aotpipe.passes.ranges.rules import interval
from tests.unit.passes.ranges.programs import Program, aten

SPACE = Space(lambda _: (None, None))


def test_an_unknown_op_gives_what_the_dtype_says() -> None:
    program = Program()
    x = program.input((2, 2), dtype=torch.int16)
    unknown = program.call(aten.matmul.default, x, x)
    assert interval(unknown, SPACE, lambda _: Interval(0, 1)) == Interval(-32768, 32767)
    floats = program.call(aten.exp.default, program.input((2,), dtype=torch.float32))
    assert interval(floats, SPACE, lambda _: Interval(0, 1)) == ANY


def test_a_rule_that_leaves_the_dtype_is_dropped() -> None:
    program = Program()
    x = program.input((2,), dtype=torch.int8)
    doubled = program.call(aten.mul.Tensor, x, 2)

    def of(small: int):
        return lambda argument: Interval(argument, argument) if argument == 2 else Interval(0, small)

    assert interval(doubled, SPACE, of(60)) == Interval(0, 120)
    assert interval(doubled, SPACE, of(100)) == Interval(-128, 127)


def test_a_bool_is_a_bit() -> None:
    program = Program()
    x = program.input((2,), dtype=torch.float32)
    assert interval(program.call(aten.isnan.default, x), SPACE, lambda _: ANY) == BIT


def test_an_offset_is_not_negative() -> None:
    program = Program()
    offset = program.call(aten.sym_storage_offset.default, program.input((2,), dtype=torch.float32))
    assert interval(offset, SPACE, lambda _: ANY) == Interval(0)
