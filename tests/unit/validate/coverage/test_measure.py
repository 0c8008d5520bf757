"""The calls of a reference reach both sides of every branch, and each size of every Dim."""

from __future__ import annotations

import linecache

import numpy as np
import pytest
import torch

from aotpipe.backends import legalization
from aotpipe.core.serialization import attributes
from aotpipe.passes import legalize
from aotpipe.runtime.goldens import Golden, sequences
from aotpipe.validate.coverage import goals, measure, search
from aotpipe.validate.coverage.interpreter import Interpreter
from aotpipe.validate.inputs import Call
from aotpipe.validate.kept import to_keep
from aotpipe.validate.reference import Reference, reference
from tests.unit.validate.coverage.models import ROWS, Nested, Unreachable, X, exported, summed


def referred(model: torch.nn.Module) -> Reference:
    made = exported(model, dynamic_shapes=ROWS)
    return reference(made.canonical, legalize(made, legalization("torch")), exported=made)


def test_what_was_found_is_compared_and_what_eager_refuses_too():
    found = referred(Nested())
    assert found.coverage.percent == 100.0
    cases = {golden.case for golden in found.goldens}
    assert {goal.case for goal in found.coverage.goals} <= cases
    [refused] = {golden.raises for golden in found.goldens if golden.raises}
    assert refused == "AssertionError: too small"


def test_what_was_not_reached_is_named_with_its_line():
    [goal] = referred(Unreachable()).coverage.missed
    assert (goal.kind, goal.what, bool(goal.reason)) == ("branch", "is true", True)
    assert goal.where is not None
    assert "if x.abs().sum() < -1" in linecache.getline(goal.where.path, goal.where.line)


def test_each_size_is_a_goal():
    sizes = {goal.what for goal in referred(Unreachable()).coverage.goals if goal.kind == "size"}
    assert {"n=2", "n=3", "n=8", "n=9"} < sizes


def test_what_was_too_dear_to_look_at_makes_it_unknown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search, "_MOST_OF_ONE", -1)
    found = referred(Unreachable()).coverage
    [note] = found.notes
    assert note.endswith("planned runs were too dear to look at")
    reached, missed = (goal for goal in found.goals if goal.kind == "branch")
    if missed.reached:
        reached, missed = missed, reached
    assert (reached.case, missed.reason[:11]) == ("example", "nobody know")


def test_what_the_first_run_reaches_is_known_whatever_the_others_take(monkeypatch: pytest.MonkeyPatch):
    class Counting(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.where((x.sum() > 0).logical_and(x.mean() > 1), x, -x)

    monkeypatch.setattr(search, "_MOST_OF_ONE", -1)
    assert referred(Counting()).coverage.notes == ()


def test_the_run_that_tells_of_an_entry_point_is_kept_though_another_one_ends_it():
    made = summed()
    found = search.Search(Interpreter(made), goals.targets(made), {}, 0, accept=lambda _: True)

    def golden(name: str, entry_point: str, *, reset: bool = True) -> Golden:
        inputs = {"x": X.numpy()}
        outputs = {"output": np.zeros(1 << 17, np.uint8)}
        return Golden(
            entry_point=entry_point, case=name, reset=reset, inputs=inputs, outputs=outputs, allowed={}
        )

    examples = [golden("example", "add"), golden("example", "ask")]
    dull = [golden("seed 0", "ask")]
    telling = [
        golden(f"found/{place}", name, reset=place == 0) for place, name in enumerate(["add", "ask", "add"])
    ]
    goldens = [*examples, *dull, *telling]
    for run in sequences(goldens):
        found.observe(tuple(Call(**attributes(each, "entry_point case reset inputs")) for each in run))
    reached = measure.coverage(found, (), {}, {}, 0)
    assert {goal.what: goal.case for goal in reached.goals} == {"is true": "found/1", "is false": "example"}
    room = sum(
        array.nbytes
        for each in (*examples, *telling)
        for array in (*each.inputs.values(), *each.outputs.values())
    )
    kept = to_keep(goldens, reached, 8 * room)
    assert [each.case for each in kept] == ["example", "example", "found/0", "found/1", "found/2"]
