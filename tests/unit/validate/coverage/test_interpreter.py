"""The interpreter answers as the program does, and records what it decided."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotpipe.validate.coverage import interpreter
from aotpipe.validate.coverage.interpreter import Interpreter, TooLong
from aotpipe.validate.inputs import Call
from tests.unit.validate.coverage.models import Halving, Nested, exported


def call(x: object, *, reset: bool = True) -> Call:
    return Call(
        entry_point="forward", case="c", reset=reset, inputs={"x": np.asarray(x, np.float32).reshape(-1)}
    )


def outcomes(calls: list[Call], model: torch.nn.Module) -> list[int]:
    trace = Interpreter(exported(model)).run(calls, limit=100_000)
    return [each.outcome for each in trace.decisions if each.node.target not in interpreter.CONNECTIVES]


def test_branches_and_asserts_in_their_order():
    x = np.ones(6)
    assert outcomes([call(x)], Nested()) == [1, 0, 0]
    assert outcomes([call(x * 10)], Nested()) == [1, 1]


def test_state_goes_from_call_to_call_and_the_next_run_begins_anew():
    found = Interpreter(exported(Nested()))
    low = [call(-4 * np.ones(6)), call(-4 * np.ones(6), reset=False)]
    for _ in range(2):
        trace = found.run(low, limit=100_000)
        plain = [each for each in trace.decisions if each.node.target not in interpreter.CONNECTIVES]
        assert [each.outcome for each in plain] == [1, 0, 0, 1, 0, 1]


def test_an_assert_that_does_not_hold_ends_the_run():
    trace = Interpreter(exported(Nested())).run([call(-2000 * np.ones(6)), call(np.ones(6))], limit=100_000)
    assert trace.refused
    assert trace.answered == 0
    assert [each.outcome for each in trace.decisions] == [0]


def test_trips_of_a_loop():
    assert outcomes([call(np.ones(6)), call(2 * np.ones(6)), call(5 * np.ones(6))], Halving()) == [0, 1, 3]


def test_a_run_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(interpreter, "_MOST_TRIPS", 2)
    with pytest.raises(TooLong):
        outcomes([call(100 * np.ones(6))], Halving())
