"""A model gets a generator of its own, and is left alone itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.trace import random_draws
from aotpipe.errors import SpecInvalid, TrainMode
from aotpipe.model.spec import EntryPoint, as_spec

POSITIVE = torch.tensor([1.0, 2.0, 3.0])


class Keeps(nn.Module):
    """Has what its generator is called, and state of its own."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Identity()
        self.register_buffer("state", torch.zeros(3))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.state += torch.rand(3)
        return self.generator(self.state) * self.calls + x


def drawn(x):
    return x + torch.rand(3)


def _canonical(model: Any, **options: Any) -> Any:
    return canonicalize(as_spec(model, args=(POSITIVE.clone(),), **options))


def test_the_model_itself_is_left_alone():
    model = Keeps().eval()
    before, names = dict(vars(model)), set(model.state_dict())
    _canonical(model, random="state")
    assert vars(model) == before
    assert set(model.state_dict()) == names
    assert type(model) is Keeps


def test_bad_requests_are_refused():
    with pytest.raises(SpecInvalid, match="come from no 'dice'"):
        as_spec(drawn, args=(POSITIVE,), random="dice")
    with pytest.raises(SpecInvalid, match="not within 0 and 4294967295"):
        _canonical(drawn, random="state", seed=-1)

    def own(x, random_seed):
        return x + torch.rand(3) * random_seed

    with pytest.raises(SpecInvalid, match="a parameter 'random_seed' of its own"):
        canonicalize(as_spec(own, args=(POSITIVE, POSITIVE), random="input"))
    dropping = nn.Dropout(0.5).train()
    with pytest.raises(TrainMode):
        _canonical(dropping)
    _canonical(dropping, random="state")
    with pytest.raises(TrainMode):
        _canonical(nn.BatchNorm1d(3).train(), random="state")


def test_entry_points_draw_from_one_generator():
    class Two(nn.Module):
        def first(self, x):
            return x + torch.rand(3)

        def second(self, x):
            return x * torch.rand(3)

    entries = {name: EntryPoint(args=(POSITIVE,), method=name) for name in ("first", "second")}
    found = canonicalize(as_spec(Two().eval(), entry_points=entries, random="state", seed=2))
    one, other = (each.module for each in found.entries)
    want = torch.rand(0)
    with random_draws.drawn_from(torch.tensor([2, 0])):
        want = torch.cat([torch.rand(3), torch.rand(3)])
    got = torch.cat([one(torch.zeros(3)), other(torch.ones(3))])
    assert torch.equal(want, got)
