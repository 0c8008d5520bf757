"""Settled lines: a model that was refused is exported once eager's values stand in for its looks."""

from __future__ import annotations

import pytest
import torch

from aotpipe import canonicalize
from aotpipe.tools.check.eager_runs import observe
from aotpipe.tools.check.replay import with_replay

X = torch.tensor([1.0, 2.0, 3.0])


class Looking(torch.nn.Module):
    def forward(self, x, flag):
        y = x.numpy() * 2
        if flag:
            x = x + 1
        name = str(x.sum().item() > 3)
        k = int(x[0])
        while x.sum() > 4:
            x = x / 2
        return x[:k] * {"True": 1.0, "False": 2.0}[name] + float(y[0]), x[x > 0.1]


def test_a_model_with_all_its_looks_replayed_is_exported():
    [entry] = canonicalize(Looking().eval(), (X, torch.tensor(True))).entries
    known = with_replay(entry, observe(entry).first)
    program = torch.export.export(known.module, entry.entry.args, strict=False)
    want = entry.module(*entry.entry.args)
    got = program.module()(*entry.entry.args)
    for mine, other in zip(want, got, strict=True):
        torch.testing.assert_close(mine, other)


def test_nothing_replayed_is_the_entry_itself():
    [entry] = canonicalize(Looking().eval(), (X, torch.tensor(True))).entries
    assert with_replay(entry, []) is entry


def test_the_rest_is_refused_as_before():
    [entry] = canonicalize(Looking().eval(), (X, torch.tensor(True))).entries
    events = [event for event in observe(entry).first if event.kind != "array"]
    with pytest.raises(Exception, match="numpy"):
        torch.export.export(with_replay(entry, events).module, entry.entry.args, strict=False)
