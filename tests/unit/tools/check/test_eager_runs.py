"""Runs: two calls in a row, then every decision the other way."""

from __future__ import annotations

import torch

from aotpipe import canonicalize
from aotpipe.tools.check.eager_runs import Observed, observe

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


def test_paths_that_the_example_does_not_take_are_seen():
    found = observed(Nested(), X)
    assert [event.place.expression for event in found.first] == ["x.sum() > 100"]
    assert {place.expression for place, _ in found.events} == {
        "x.sum() > 100",
        "x.min() > 5",
        "x.max().item()",
    }
    assert [(each.place.expression, str(each.error)) for each in found.raised] == [("x.min() > 5", "large")]


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
