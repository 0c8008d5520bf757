"""Attributes that calls change become buffers of the source."""

from __future__ import annotations

import ast

import pytest
import torch
from torch import nn

import aotpipe
from aotpipe.tools.rewrite import state_buffers
from aotpipe.tools.rewrite.expression_rewrites import Unsupported

CODE = """
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.mean = torch.zeros(2)

    def forward(self, x):
        self.calls += 1
        self.mean = self.mean * 0.5 + x
        return x * self.calls + self.mean
"""


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.mean = torch.zeros(2)

    def forward(self, x):
        self.calls += 1
        self.mean = self.mean * 0.5 + x
        return x * self.calls + self.mean


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x)


class Late(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x):
        y = x if self.last is None else x + self.last
        self.last = x
        return y


X = torch.ones(2)


def test_what_calls_change_and_where_it_is_set():
    exported = aotpipe.export(Net().eval(), args=(X,))
    states = state_buffers.kept(exported)
    assert states == {"inner.calls": torch.int64, "inner.mean": torch.float32}
    made = dict(state_buffers.edits(ast.parse(CODE).body, exported.canonical.model, states))
    assert made == {
        (5, 5): "        self.register_buffer('calls', torch.tensor(0), persistent=False)",
        (6, 6): "        self.register_buffer('mean', torch.zeros(2), persistent=False)",
    }
    with pytest.raises(Unsupported, match="not set once"):
        list(state_buffers.edits([], exported.canonical.model, states))


def test_attributes_become_buffers():
    model = Net()
    state_buffers.register(model, {"inner.calls": torch.int64})
    assert [name for name, _ in model.named_buffers()] == ["inner.calls"]
    assert not model.state_dict()


def test_what_takes_several_forms():
    with pytest.raises(Unsupported, match="takes several forms"):
        state_buffers.kept(aotpipe.export(Late().eval(), args=(X,)))


def test_which_functions_change_them():
    [owner] = ast.parse(CODE).body
    first, forward = owner.body
    assert state_buffers.changes(forward, ["calls"])
    assert not state_buffers.changes(forward, ["mean"])
    assert not state_buffers.changes(first, ["calls"])
