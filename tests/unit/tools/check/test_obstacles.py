"""From refusals to obstacles: the code, the message, the reason, the history and the hint of each."""

from __future__ import annotations

import torch

import aotpipe
from aotpipe.errors import ExportFailed, SourceLine, StaticDim, UnsupportedOp, UnsupportedOps
from aotpipe.tools.check.attempt import Refusal
from aotpipe.tools.check.obstacles import obstacles
from tests.unit.tools.check import models
from tests.unit.tools.check.models import X


def test_an_obstacle_says_it_all():
    [found] = aotpipe.check(models.TwoShapes().eval(), (X,)).obstacles
    assert found.code == "paths-differ"
    assert "`y` has the shapes" in found.message
    assert found.reason == "this if would become torch.cond"
    assert found.place is not None
    assert found.place.expression == "x.sum() > 0"
    assert [step.what for step in found.history] == ["`x.sum() > 0`", "the input `x`"]
    assert found.hint
    assert found.seen
    assert found.entry_point == "forward"


def test_a_generator_is_named_as_the_reason():
    class Rows(torch.nn.Module):
        def rows(self, x):
            for row in x:
                if row.sum() > 0:
                    yield row

        def forward(self, x):
            return sum(self.rows(x))

    for found in aotpipe.check(Rows().eval(), (X,)).obstacles:
        assert found.code == "branch-on-tensor"
        assert found.reason == "a generator is left as it is"


def test_ops_are_one_obstacle_each():
    ops = [
        UnsupportedOp("aten.a.default", "has no lowering", 1, None),
        UnsupportedOp("aten.b.default", "draws", 3, SourceLine("net.py", 4)),
    ]
    found = list(obstacles([Refusal(UnsupportedOps("2 ops", hint="other ops", ops=ops))], {}))
    assert [each.message for each in found] == ["aten.a.default has no lowering", "aten.b.default draws"]
    assert found[1].reason == "met 3 times, first here"
    assert str(found[1].where) == "net.py:4"


def test_errors_without_a_look_into_a_tensor_keep_their_words():
    errors = [StaticDim("one size only"), ExportFailed("something else", hint="do this")]
    found = list(obstacles([Refusal(error) for error in errors], {}))
    assert [(each.code, each.message) for each in found] == [
        ("static-dim", "one size only"),
        ("not-exported", "something else"),
    ]
    assert found[1].hint == "do this"
