"""Attempts: every line that the stages refuse is found, and no line that they take."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import aotpipe
from aotpipe import canonicalize
from aotpipe.build.request import Request
from aotpipe.errors import MeshError, NoBuckets, UnsupportedOps
from aotpipe.export import export
from aotpipe.tools.check import attempt as module
from aotpipe.tools.check.attempt import Attempted, attempt, with_replay
from aotpipe.tools.check.eager_runs import observe
from tests.unit.tools.check import models
from tests.unit.tools.check.models import X


def attempted(module: torch.nn.Module, *args: object) -> Attempted:
    canonical = canonicalize(module.eval(), args)
    return attempt(canonical, {entry.name: observe(entry) for entry in canonical.entries}, Request.of(None))


def test_a_model_that_builds_is_refused_nowhere():
    found = attempted(models.Conditional(), X)
    assert not found.refusals
    assert not found.replayed
    assert found.complete
    assert [entry.name for entry in found.entries] == ["forward"]


def test_a_line_behind_another_is_found_and_one_that_is_taken_is_not():
    class Behind(torch.nn.Module):
        def forward(self, x):
            if x.sum() < -100:
                x = x + torch.from_numpy(x.numpy() * 2)
            y = x.flatten()
            if x.mean() > 0:
                y = x[:, :2]
            return y

    found = attempted(Behind(), X)
    looks = [event.place.expression for refusal in found.refusals for event in refusal.events]
    assert sorted(looks) == ["x.mean() > 0", "x.numpy()"]
    assert found.complete


def test_ops_without_lowering_are_refused_together():
    [refusal] = attempted(models.Determinant(), torch.eye(4)).refusals
    assert isinstance(refusal.error, UnsupportedOps)
    assert len(refusal.error.ops) == 2


def test_a_refusal_that_no_look_into_a_tensor_explains_is_told_as_it_is():
    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.zeros(3).set_(x.untyped_storage())

    found = attempted(Odd(), torch.ones(3))
    assert len(found.refusals) == 1
    assert not found.refusals[0].events
    assert not found.complete


def test_what_is_refused_in_any_case_hides_no_line_before_it():
    class Odd(torch.nn.Module):
        def forward(self, x):
            scale = {"1": 2.0}.get(f"{x.sum().item():.0f}", 1.0)
            return torch.zeros(3).set_((x * scale).untyped_storage())

    found = attempted(Odd(), torch.ones(3))
    assert len(found.refusals) == 2
    assert [event.place.expression for event in found.refusals[1].events] == ["x.sum().item()"]


def test_the_same_lines_are_exported_once(monkeypatch):
    class Named(torch.nn.Module):
        def forward(self, x):
            return x * {"0": 2.0}.get(f"{x.sum().item():.0f}", 1.0)

    calls = []
    monkeypatch.setattr(module, "export", lambda model: calls.append(model) or export(model))
    found = attempted(Named(), X)
    assert len(found.refusals) == 1
    assert len(calls) == 2


def codes(model: object, *args: object, **options: object) -> set[str]:
    return {each.code for each in aotpipe.check(model, args, **options).diagnostics}


def test_the_options_of_a_build_are_applied():
    linear = torch.nn.Linear(3, 2).eval()
    x = torch.ones(2, 3)
    assert "precision" in codes(linear, x, dtype="bf16")
    with pytest.raises(NoBuckets, match="no Dim is called 'batch'"):
        codes(linear, x, buckets={"batch": [1]})
    dims = {"input": {0: aotpipe.Dim("batch", max=8)}}
    assert "bucket-plan" in codes(linear, x, dynamic_shapes=dims, buckets={"batch": "auto"})
    with pytest.raises(MeshError, match="matches nothing"):
        codes(linear, x, mesh="x=2", shard=["w=(x, None)"])
    assert not codes(linear, x, mesh="x=2", shard=["weight=(x, None)"])


def test_what_may_stay_python_is_no_obstacle_where_islands_are_allowed():
    @aotpipe.eager_island
    def outside(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def model(x: torch.Tensor) -> torch.Tensor:
        return outside(x * 2) * 3

    assert "stays-python" in codes(model, X)
    assert codes(model, X, allow_islands=True) == {"eager-island"}


class Counted(torch.nn.Module):
    def __init__(self, island):
        super().__init__()
        self.island = island
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if x.sum() < 0:
            raise ValueError("negative")
        return self.island(x) + self.calls


def test_a_chain_with_islands_takes_back_what_it_wrote_before_a_raise():
    @aotpipe.eager_island
    def outside(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert "state-before-raise" in codes(Counted(outside).eval(), X, allow_islands=True)
    assert "state-before-raise" not in codes(Counted(torch.nn.Identity()).eval(), X)


ROW = torch.tensor([1.0, 2.0, 3.0])


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
    [entry] = canonicalize(Looking().eval(), (ROW, torch.tensor(True))).entries
    known = with_replay(entry, observe(entry).first)
    program = torch.export.export(known.module, entry.entry.args, strict=False)
    want = entry.module(*entry.entry.args)
    got = program.module()(*entry.entry.args)
    for mine, other in zip(want, got, strict=True):
        torch.testing.assert_close(mine, other)


def test_nothing_replayed_is_the_entry_itself():
    [entry] = canonicalize(Looking().eval(), (ROW, torch.tensor(True))).entries
    assert with_replay(entry, []) is entry


def test_the_rest_is_refused_as_before():
    [entry] = canonicalize(Looking().eval(), (ROW, torch.tensor(True))).entries
    events = [event for event in observe(entry).first if event.kind != "array"]
    with pytest.raises(Exception, match="numpy"):
        torch.export.export(with_replay(entry, events).module, entry.entry.args, strict=False)


class Layer(nn.Module):
    def __init__(self, last: bool = False):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.last = last
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        y = self.norm(self.linear(x))
        self.seen.add_(y.detach().mean(0))
        first, second = y.split(2, dim=-1)
        y = torch.cat([first.relu_(), second[:, :1] * 2, second[:, 1:]], dim=-1)
        return x + (torch.linalg.eigvals(y.T @ y).abs() if self.last else y + self.seen)


def test_what_is_refused_in_one_layer_is_found_and_counted_in_all():
    model = nn.Sequential(*(Layer() for _ in range(3)), Layer(last=True), Layer(), Layer(last=True)).eval()
    [refusal] = attempted(model, torch.linspace(-1.0, 1.0, 8).reshape(2, 4)).refusals
    assert isinstance(refusal.error, UnsupportedOps)
    assert [op.count for op in refusal.error.ops] == [2]
