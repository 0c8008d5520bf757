"""What a trace decided is noted where the user's code stands, and only while somebody asks."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import aotpipe
from aotpipe.canonicalize.trace import decisions

X = torch.ones(3)


class Net(nn.Module):
    def forward(self, x):
        n = 0
        while n < 3 and x.sum() < 50:
            if x.max() > 2:
                x = x * 2
            n += 1
        return x


FIRST = Net.forward.__code__.co_firstlineno


def test_statements_and_expressions_have_their_places():
    with decisions.recorded() as notes:
        aotpipe.export(Net().eval(), args=(X,))
    kinds = {(each.kind, each.line - FIRST) for each in notes}
    assert kinds >= {("loop", 2), ("branch", 3), ("logic", 2)}
    loop = next(each for each in notes if each.kind == "loop")
    assert set(loop.names) >= {"x", "n"}
    assert len(loop.abstracts) == len(loop.before) == len(loop.names)
    logic = next(each for each in notes if each.kind == "logic")
    assert logic.span is not None
    line = Path(__file__).read_text().splitlines()[logic.span[0] - 1]
    assert line[logic.span[2] : logic.span[3]] == "n < 3 and x.sum() < 50"


def test_nothing_is_noted_otherwise():
    with decisions.recorded() as notes:
        pass
    aotpipe.export(Net().eval(), args=(X,))
    assert notes == []


def test_what_a_recording_keeps_is_its_own_until_it_is_handed_on():
    with decisions.recorded() as outer:
        with decisions.recorded() as inner:
            aotpipe.export(Net().eval(), args=(X,))
        assert inner
        assert outer == []
        decisions.keep(inner)
    assert outer == inner
    decisions.keep(inner)  # nobody records
