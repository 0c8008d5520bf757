"""The whole way, from a model to proved code."""

from __future__ import annotations

import pytest
import torch

import aotpipe
from aotpipe import EntryPoint
from aotpipe.errors import RewriteFailed
from aotpipe.written import writing

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
    assert found.state == ("kept",)
    assert found.original == __file__


def test_what_has_no_form_is_refused(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object):
        raise TypeError("a Widget has no expression")

    monkeypatch.setattr(writing, "printed", fail)
    with pytest.raises(RewriteFailed, match="has no form in Python"):
        aotpipe.written(Cache().look, args=(X,))
