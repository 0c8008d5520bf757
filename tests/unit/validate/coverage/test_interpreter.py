"""The interpreter answers as the program does, and records what it decided."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from aotpipe.backends import legalization
from aotpipe.passes import legalize
from aotpipe.runtime.goldens import sequences
from aotpipe.validate.coverage import interpreter
from aotpipe.validate.coverage.interpreter import Frame, Interpreter, TooLong
from aotpipe.validate.inputs import Call, plan
from aotpipe.validate.reference import example_inputs
from tests.unit.validate.coverage.models import Fixed, Halving, Needle, Nested, X, exported


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


def function(of: Callable[..., Any]) -> torch.nn.Module:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return of(x)

    return Model()


class Cache(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(4, 6))
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.place >= 3:
            self.place.zero_()
        self.kept.index_copy_(0, self.place[None], x[None])
        self.place += 1
        return self.kept.cumsum(0)


def without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x * 2
    with torch.autocast("cpu", torch.bfloat16):
        return y @ y


def rows(x: torch.Tensor) -> torch.Tensor:
    found = []
    for row in x:
        if row.sum() > 0:
            found.append(row * 2)
        else:
            found.append(row)
    return torch.stack(found)


ANSWERED: dict[str, tuple[torch.nn.Module, torch.Tensor]] = {
    "nested": (Nested(), X),
    "halving": (Halving(), X),
    "fixed": (Fixed(), X),
    "needle": (Needle(), torch.arange(6)),
    "cache": (Cache(), X),
    "lstm": (torch.nn.LSTM(4, 3), torch.ones(5, 2, 4)),
    "convolution": (
        torch.nn.Sequential(torch.nn.Conv1d(2, 3, 3), torch.nn.BatchNorm1d(3)),
        torch.ones(1, 2, 8),
    ),
    "embedding": (torch.nn.Embedding(9, 3), torch.arange(9)),
    "bfloat16": (torch.nn.Linear(6, 2).bfloat16(), X.bfloat16()),
    "float64": (function(lambda x: x.softmax(-1)), X.double()),
    "complex": (function(lambda x: torch.fft.rfft(x).abs()), X),
    "order": (function(lambda x: (x.sort(), x.topk(2), x.nonzero())), X),
    "modes": (function(without_gradients), torch.ones(3, 3)),
    "rows": (function(rows), torch.randn(3, 2, generator=torch.Generator().manual_seed(0))),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_every_planned_run_is_answered(name: str):
    model, x = ANSWERED[name]
    made = exported(model, x)
    example = example_inputs(made.canonical.entries[0])
    signatures = legalize(made, legalization("torch")).signatures
    found = Interpreter(made)
    for run in sequences(plan(signatures, {"forward": example}).calls):
        traces = [found.run(run, limit=limit) for limit in (1_000_000, None)]
        assert [(each.answered, each.fault) for each in traces] == [(len(run), "")] * 2
        one, other = ([(each.node, each.call, each.outcome) for each in t.decisions] for t in traces)
        assert one == other


def test_each_decision_has_the_number_of_its_call():
    calls = [call(np.ones(6)), call(10 * np.ones(6), reset=False)]
    trace = Interpreter(exported(Nested())).run(calls, limit=100_000)
    assert {each.call for each in trace.decisions if each.outcome == 1} == {0, 1}
    assert [each.call for each in trace.decisions] == sorted(each.call for each in trace.decisions)


def test_a_run_without_a_limit_keeps_no_values():
    class Breaking(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(50):
                x = x + 1
                if x.sum() > 1000:
                    break
            return x

    found = Interpreter(exported(Breaking()))
    made: list[weakref.ref[torch.Tensor]] = []
    real = Interpreter._op

    def noted(self: Interpreter, frame: Frame, node: torch.fx.Node) -> Any:
        result = real(self, frame, node)
        if isinstance(result, torch.Tensor):
            made.append(weakref.ref(result))
        alive.append(sum(each() is not None for each in made))
        return result

    most = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Interpreter, "_op", noted)
        for limit in (100_000, None):
            made.clear()
            alive: list[int] = []
            trace = found.run([call(np.ones(6))], limit=limit)
            assert trace.answered == 1
            most.append(max(alive))
            del trace
    assert most[1] < 20 < most[0]
