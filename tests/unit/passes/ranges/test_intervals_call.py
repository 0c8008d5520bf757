"""A call gives its arguments by name, defaults included."""

from __future__ import annotations

import torch

from aotpipe.passes.ranges.intervals import Call, Interval, Space, as_bound, holds_floats
from tests.unit.passes.ranges.programs import Program, aten


def _call(node: torch.fx.Node) -> Call:
    return Call(node, Space(lambda _: (None, None)), lambda argument: Interval(argument, argument))


def test_arguments_by_name() -> None:
    program = Program()
    x = program.input((2, 3))
    call = _call(program.call(aten.add.Tensor, x, 5))
    assert (call["self"], call["other"], call["alpha"]) == (x, 5, 1)
    assert call.interval("other") == Interval(5, 5)
    assert call.source is x
    assert not call.is_float
    assert _call(program.call(aten.add.Tensor, x, 5, alpha=2))["alpha"] == 2


def test_sizes() -> None:
    program = Program()
    x, scalar = program.input((2, 3)), program.input(())
    call = _call(program.call(aten.neg.default, x))
    assert [call.size(x, dim) for dim in (0, -1, None)] == [2, 3, 6]
    assert call.size(scalar, 0) == 1
    assert as_bound(4) == 4


def test_floats() -> None:
    assert holds_floats(torch.ones(1))
    assert holds_floats(1.5)
    assert not holds_floats(torch.ones(1, dtype=torch.int8))
    assert not holds_floats(True)
