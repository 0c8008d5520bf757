"""Runs: two calls in a row, then every decision the other way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from aotpipe import canonicalize
from aotpipe.tools.check.eager_runs import Forced, Observed, Watch, observe

X = torch.tensor([1.0, 2.0])


def observed(module: torch.nn.Module, *args: object) -> Observed:
    [entry] = canonicalize(module.eval(), args).entries
    return observe(entry)


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.kept = [1]
        self.fixed = 3

    def forward(self, x):
        self.calls += 1
        self.kept.append(self.calls)
        return x


class Nested(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 100:
            if x.min() > 5:
                raise ValueError("large")
            x = x + x.max().item()
        return x


def test_attributes_that_calls_change_are_told_with_their_values():
    module = Counter()
    found = observed(module, X)
    assert found.changed["calls"] == (0, 1, 2)
    assert set(found.changed) == {"calls", "kept"}
    assert (module.calls, module.kept) == (0, [1])


class Holding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = [Counter()]

    def forward(self, x):
        return self.parts[0](x)


def test_attributes_of_a_module_in_a_list_are_told_too():
    assert observed(Holding(), X).changed["parts.0.calls"] == (0, 1, 2)


def test_paths_that_the_example_does_not_take_are_seen():
    found = observed(Nested(), X)
    assert [event.place.expression for event in found.first] == ["x.sum() > 100"]
    assert {place.expression for place, _ in found.events} == {
        "x.sum() > 100",
        "x.min() > 5",
        "x.max().item()",
    }
    assert [(place.expression, str(error)) for place, error in found.raised.items()] == [
        ("x.min() > 5", "large")
    ]


def test_a_loop_that_is_forced_on_ends():
    class Loop(torch.nn.Module):
        def forward(self, x):
            while x.sum() > 100:
                x = x - 1
            return x

    found = observed(Loop(), X)
    [place] = found.outcomes
    assert found.outcomes[place] == {False}


def test_a_decision_that_varies_from_the_second_trip_on_varies():
    class Loop(torch.nn.Module):
        def forward(self, x):
            step = torch.tensor(1.0)
            while step > 0.1:
                step = step * x.abs().min() / 4
            return step

    [event] = observed(Loop(), X).events.values()
    assert event.node.varies


def watched(call: Any, *inputs: torch.Tensor, forced: tuple[Forced, ...] = ()) -> Watch:
    names = [(tensor, "input", f"x{number}") for number, tensor in enumerate(inputs)]
    watch = Watch(names, forced)
    with watch:
        call(*inputs)
    return watch


ROW = torch.tensor([1.0, -2.0, 3.0])
LOOKS = {
    "truth": lambda x: bool(x.sum() > 0),
    "truth-any": lambda x: 1 if x.any() else 2,
    "truth-in": lambda x: 2.0 in x,
    "number": lambda x: x.sum().item(),
    "number-int": lambda x: int(x.sum()),
    "number-list": lambda x: x.tolist(),
    "number-index": lambda x: [1, 2, 3][x[0].long()],
    "array": lambda x: x.numpy(),
    "text": lambda x: f"{x}",
    "text-str": lambda x: str(x),
    "size": lambda x: x[x > 0],
    "size-nonzero": lambda x: x.nonzero(),
    "size-where": lambda x: torch.where(x > 0),
    "size-slice": lambda x: x[: x[0].long()],
    "size-repeat": lambda x: x.repeat_interleave(torch.tensor([1, 2, 1])),
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_look_into_a_tensor_is_an_event(name: str):
    kinds = {event.kind for event in watched(LOOKS[name], ROW).events}
    assert kinds == {name.partition("-")[0]}


def test_what_stays_in_torch_is_none():
    def call(x: torch.Tensor) -> Any:
        return torch.where(x > 0, x, 0.0)[:2].topk(1), len(x), x.shape[0], x.dtype

    assert not watched(call, ROW).events


def test_an_event_has_its_expression_and_a_history():
    def call(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        z = y.abs().sum()
        if z > 3 and y.mean() < 100:
            return y
        return x

    first, second = watched(call, ROW).events
    assert (first.place.expression, second.place.expression) == ("z > 3", "y.mean() < 100")
    assert [step.what for step in first.node.history()] == [
        "`z > 3`",
        "`y.abs().sum()`",
        "`x * 2`",
        "the input `x0`",
    ]


def test_the_truth_of_a_call_is_the_call_and_not_the_whole_statement():
    def call(x: torch.Tensor) -> int:
        if x.isnan().any():
            return 1
        return 2

    [event] = watched(call, ROW).events
    assert event.place.expression == "x.isnan().any()"


def test_what_depends_on_no_input_does_not_vary():
    def call(x: torch.Tensor) -> torch.Tensor:
        limit = torch.tensor(3.0)
        return x if limit > 2 else -x

    [event] = watched(call, ROW).events
    assert not event.node.varies


def test_writes_in_place_are_part_of_the_history():
    def call(x: torch.Tensor) -> bool:
        y = torch.zeros(3)
        y[0] = x.sum()
        return bool(y.sum() > 0)

    [event] = watched(call, ROW).events
    assert event.node.varies
    assert event.node.history()[-1].what == "the input `x0`"


def test_a_decision_can_be_forced():
    taken = []

    def call(x: torch.Tensor) -> None:
        taken.append(bool(x.sum() > 0))

    seen = watched(call, ROW)
    [place] = seen.outcomes
    assert seen.outcomes[place] == {True}
    assert watched(call, ROW, forced=(Forced(place, to=False),)).outcomes[place] == {False}
    assert taken == [True, False]


def test_what_numpy_gives_back_comes_from_what_was_taken():
    def call(x: torch.Tensor) -> bool:
        y = torch.from_numpy(np.sort(x.numpy()))
        return bool(y.sum() > 0)

    event = watched(call, ROW).events[-1]
    assert event.node.varies
    assert [step.what for step in event.node.history()] == [
        "`y.sum() > 0`",
        "what Python made of `x.numpy()`",
        "the input `x0`",
    ]
