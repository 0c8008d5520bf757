"""The calls of a reference reach both sides of every branch, and each size of every Dim."""

from __future__ import annotations

import linecache

import torch

from aotpipe.backends import legalization
from aotpipe.passes import legalize
from aotpipe.validate.reference import Reference, reference
from tests.unit.validate.coverage.models import ROWS, Nested, Unreachable, exported


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
