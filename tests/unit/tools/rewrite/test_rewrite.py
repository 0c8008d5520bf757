"""The whole way, from a model to proved code."""

from __future__ import annotations

import pytest
import torch

import aotpipe
from aotpipe import EntryPoint
from aotpipe.errors import RewriteFailed
from aotpipe.tools import rewrite

X = torch.ones(3)


class Cache(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(3))

    def store(self, x):
        self.kept.copy_(x)
        return x + 1

    def look(self, y):
        return self.kept * y


def test_several_entry_points_share_their_state():
    found = aotpipe.written(
        Cache().eval(),
        entry_points={
            "store": EntryPoint(args=(X,), method="store"),
            "look": EntryPoint(args=(X,), method="look"),
        },
    )
    assert found.methods == {"store": "store", "look": "look"}
    assert "self.kept.copy_(x)" in found.text
    assert found.proof.sequences > 1
    assert found.original == __file__


def test_what_has_no_form_is_refused(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object):
        raise TypeError("a Widget has no expression")

    monkeypatch.setattr(rewrite, "generate_class", fail)
    with pytest.raises(RewriteFailed, match="has no form in Python"):
        aotpipe.written(torch.nn.Linear(3, 3).eval(), args=(X,))


class Halved(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        n = 0
        while x.abs().max() > 1:
            x = x * self.factor * self.scale
            n += 1
        return x, n


def test_a_model_is_written_from_its_source_where_that_can_be():
    found = aotpipe.written(Halved(0.5).eval(), args=(X * 5,))
    assert (found.way, found.reason) == ("source", "")
    assert "while_loop" in found.text
    assert "self.factor = factor" in found.text
    [loop] = found.proof.coverage
    assert loop.is_full


def test_and_from_its_graph_with_the_reason_elsewhere():
    found = aotpipe.written(torch.nn.Linear(3, 3).eval(), args=(X,))
    assert (found.way, found.reason) == ("graph", "its class is a library's")
    assert found.original is None
    assert found.diff().startswith("--- /dev/null")
