"""What a model's code reaches outside of its modules, and what of it a call changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from aotpipe.canonicalize.modules import as_module
from aotpipe.canonicalize.state import free_variables

COUNT = 0
ROWS: list[int] = []
TABLE: dict[str, Any] = {"a": [torch.zeros(1)]}


class Named(dict[str, int]):
    """A class of the user's own."""


NAMED = Named()
PAIR: tuple[list[int], int] = ([], 0)


def helper() -> None:
    global COUNT
    COUNT += 1


class Model(nn.Module):
    total = 0
    names: list[str] = []  # noqa: RUF012  # as people write it

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        helper()
        return x * (len(ROWS) + len(TABLE) + len(NAMED) + len(PAIR))


def _count() -> None:
    helper()


CHANGES: dict[str, Any] = {
    "the global `COUNT`": _count,
    "the global `ROWS`": lambda: ROWS.append(1),
    "the global `NAMED`": lambda: NAMED.update(n=1),
    "the global `PAIR`": lambda: PAIR[0].append(1),
    "the global `TABLE`": lambda: TABLE["a"][0].add_(1),
    "the class attribute `Model.total`": lambda: setattr(Model, "total", 5),
    "the class attribute `Model.names`": lambda: Model.names.append("x"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_named_and_taken_back(name: str) -> None:
    before = free_variables.Outside(Model())
    assert before.changed() == []
    CHANGES[name]()
    [variable] = before.changed()
    assert variable.name == name
    before.restore()
    # What was written into tensors stays.
    assert len(before.changed()) == int("TABLE" in name)


def test_the_variables_of_outer_functions_are_reached() -> None:
    n = 0
    rows: list[int] = []

    def model(x: torch.Tensor) -> torch.Tensor:
        nonlocal n
        n += 1
        rows.append(n)
        return x * n

    before = free_variables.Outside(as_module(model))
    model(torch.ones(1))
    assert {variable.name for variable in before.changed()} == {
        "the variable `n` of an outer function",
        "the variable `rows` of an outer function",
    }
    before.restore()
    assert (n, rows) == (0, [])


def test_snapshots_are_equal_for_equal_values() -> None:
    before = free_variables.Outside(Model())
    ROWS.append(7)
    [variable] = before.changed()
    snapshot = before.snapshot_of(variable)
    ROWS[:] = [*ROWS]
    assert before.snapshot_of(variable) == snapshot
    ROWS.append(8)
    assert before.snapshot_of(variable) != snapshot
    before.restore()


class Counter:
    """A helper that a model holds, or makes."""

    def counted(self) -> int:
        helper()
        return COUNT


class Holding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.counter = Counter()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.counter.counted()


class Making(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * Counter().counted()


@pytest.mark.parametrize("model", [Holding, Making])
def test_what_methods_of_other_objects_reach_is_known(model: type[nn.Module]) -> None:
    before = free_variables.Outside(model())
    helper()
    assert [place.name for place in before.changed()] == ["the global `COUNT`"]
    before.restore()
    assert before.changed() == []
