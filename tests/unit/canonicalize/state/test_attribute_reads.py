"""Reads before writes are told apart from reads after them."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import aotpipe
from aotpipe.canonicalize.state import slots
from aotpipe.model.object_graph import Root


class Model(nn.Module):
    default = 3

    def __init__(self) -> None:
        super().__init__()
        self.a = 1


def root(model: nn.Module, key: str) -> Root:
    return Root(key, model, vars(model), key)


def test_the_order_of_accesses_tells() -> None:
    model = Model()
    a, b = root(model, "a"), root(model, "b")
    with slots.followed_reads([a, b]) as seen:
        assert isinstance(model, Model)
        assert type(model).__name__ == "Model"
        model.a += 1
        model.b = torch.ones(1)
        assert model.b.sum() == 1
    assert (seen.has(a), seen.has(b)) == (True, False)
    assert type(model) is Model
    assert (model.a, "b" in vars(model)) == (2, True)


def test_each_call_begins_anew() -> None:
    model = Model()
    b = root(model, "b")
    with slots.followed_reads([b]) as seen:
        model.b = 1
        seen.begin()
        assert model.b == 1
    assert seen.has(b)


def test_a_write_in_a_branch_that_is_traced_does_not_count() -> None:
    model = Model()
    a = root(model, "a")
    with slots.followed_reads([a]) as seen:
        with TorchFunctionMode():
            model.a = 2
        assert model.a == 2
    assert seen.has(a)


def test_names_that_are_not_there_raise_as_before() -> None:
    model: Any = Model()
    with slots.followed_reads([root(model, "b"), root(model, "default")]):
        assert not hasattr(model, "b")
        with pytest.raises(AttributeError):
            del model.b
        assert model.default == 3
        model.b = 1
        del model.b
        assert not hasattr(model, "b")


class Cached(nn.Module):
    """Computes what it keeps where it is asked for first, as libraries do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("knots", torch.linspace(-1, 2, 4))

    @cached_property
    def interval(self) -> tuple[float, float]:
        return self.knots[0].item(), self.knots[-1].item()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low, high = self.interval
        return (x - low) / (high - low)


def test_a_cached_property_is_computed_where_it_is_read(tmp_path: Path) -> None:
    """The build ended in a TypeError: the class's own descriptor was taken for the value."""
    model = Cached()
    interval = root(model, "interval")
    with slots.followed_reads([interval]) as seen:
        assert model.interval == (-1.0, 2.0)
    assert seen.has(interval)
    assert vars(model)["interval"] == (-1.0, 2.0)
    del vars(model)["interval"]
    built = aotpipe.build(
        model, args=(torch.randn(3),), targets=["iree-cpu-host"], out=tmp_path / "bundle", latency=False
    )
    assert [row.status for row in built.report.targets] == ["executed"]
