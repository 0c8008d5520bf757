"""A model that asks for the type of what it is given takes the path that it takes in eager."""

from __future__ import annotations

import functools
import numbers
from typing import Any

import pytest
import torch
from torch import nn

import aotpipe
from aotpipe.canonicalize import canonicalize
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.unit.export.models import exported as exported_model

SIZES = (4, 5, 9)


class Type(type):
    """A class of classes, and `type` of three, are what they are."""


def of_tensors(x, weight):
    if type(x) == torch.Tensor:  # noqa: E721  # as people write it
        x = x * 2
    if type(x) is torch.Tensor and type(weight) is nn.Parameter:
        x = x * 3
    if type(x) in (torch.Tensor, list) and type(x).__name__ == "Tensor":
        x = x * 5
    return {torch.Tensor: lambda value: value * 7}.get(type(x), lambda value: value)(x)


def of_sizes(x):
    n = x.shape[0] * 2
    if isinstance(n, int) and type(n) is int:
        x = x * 2
    if (
        isinstance(n, numbers.Integral)
        and isinstance(n, int | str)
        and not isinstance(n, float | torch.LongTensor)
    ):
        x = x * 3
    if isinstance(n / 4, float) and type(n / 4) is float:
        x = x * 5
    if type(x.shape) is torch.Size and isinstance(x.shape, tuple):
        x = x * 7
    return x


def of_numbers(x):
    n = x.sum().item()
    if type(n) is float and isinstance(n, float) and not isinstance(n, torch.Tensor):
        return x * 2
    return x


def of_classes(x):
    made = type("Made", (), {"factor": 3})
    kind = Type("Kind", (), {})
    if isinstance(made, type) and isinstance(Type, type) and issubclass(Type, type) and type(kind) is Type:
        return x * made.factor
    return x


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return of_tensors(x, self.weight), of_sizes(x), of_numbers(x), of_classes(x)


class Deciding(Model):
    """The same in code that is rewritten."""

    def forward(self, x):
        if x.sum() > 0:
            x = of_tensors(x, self.weight)
        return of_sizes(x), of_numbers(x), of_classes(x)


@pytest.mark.parametrize("kind", [Model, Deciding])
@pytest.mark.parametrize("is_dynamic", [True, False])
def test_types_are_those_of_eager(kind: type[nn.Module], is_dynamic: bool):
    model = kind()
    shapes = {"x": {0: aotpipe.Dim("n", min=4, max=9)}} if is_dynamic else None
    program = export(canonicalize(as_spec(model, args=(torch.ones(5),), dynamic_shapes=shapes)))
    run = program.entries[0].program.module()
    with torch.no_grad():
        for size in SIZES if is_dynamic else (5,):
            for x in (torch.ones(size), -torch.ones(size)):
                assert all(map(torch.equal, model(x), run(x)))
    assert "isinstance" not in globals()
    assert "type" not in globals()


class Hashed(torch.nn.Module):
    """A module whose hash reads its submodules."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList([torch.nn.Linear(2, 2)])

    def __hash__(self) -> int:
        return hash(tuple(hash(part) for part in self.parts))

    def __eq__(self, other: object) -> bool:
        return self is other

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.parts[0](x) + len({self})


def test_a_hash_of_a_module_that_reads_its_parts_ends() -> None:
    """torch keeps modules in tables, and looks one up for each attribute that is read."""
    outer = torch.nn.Sequential(Hashed(), Hashed())
    x = torch.randn(3, 2)
    program = exported_model(outer, x).entries[0].program
    torch.testing.assert_close(program.module()(x), outer(x))


class Shared(nn.Module):
    """Two names of one activation, which decides by its class and its identity."""

    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.act = self.last = act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(x)
        if type(self.act) is nn.ReLU:
            x = x + 1
        return x * 2 if self.act is self.last else x


def test_a_module_of_several_names_is_itself() -> None:
    """torch.export gives each name a stand-in of another class, and traces the other path."""
    act = nn.ReLU()
    model = nn.Sequential(Shared(act), Shared(act))
    x = torch.randn(4)
    program = exported_model(model, x).entries[0].program
    torch.testing.assert_close(program.module()(x), model(x))


@functools.singledispatch
def described(value: Any) -> Any:
    return -1


@described.register
def _(value: float) -> float:
    return value * 2


@described.register
def _(value: int) -> int:
    return value * 100


@described.register
def _(value: torch.Tensor) -> torch.Tensor:
    return value.sum() * 7


@described.register
def _(value: tuple) -> Any:
    return sum(described(each) for each in value)


class Dispatching(nn.Module):
    @functools.singledispatchmethod
    def of(self, value: Any) -> Any:
        return -2

    @of.register
    def _(self, value: int) -> int:
        return value + 3

    @of.register
    def _(self, value: float) -> float:
        return value + 0.5

    def forward(self, x):
        first, number = x[0].item(), int(x[1])
        return (
            *(described(first), described(number), described(x), described((first, number)), described(None)),
            *(self.of(first), self.of(number), self.of("text")),
        )


class DispatchingByChoice(Dispatching):
    """The same in code that is rewritten, also of what may be None, and of one of two classes."""

    def forward(self, x):
        choice = x[0].item() if x[1] > 0 else None
        number = x[2].item()
        is_number = number.__class__ is float and x.__class__ is torch.Tensor
        return *super().forward(x), described(choice), is_number


@pytest.mark.parametrize("kind", [Dispatching, DispatchingByChoice])
def test_functions_of_singledispatch_go_by_the_class_that_a_number_has_in_eager(kind: type[nn.Module]):
    """They went by torch's own class, for which there is no function, and gave what that for objects does."""
    model = kind()
    dispatch = described.dispatch
    run = exported_model(model, torch.ones(3)).entries[0].program.module()
    for x in (torch.ones(3), torch.tensor([-2.5, -4.0, 0.0])):
        for want, got in zip(model(x), run(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(want), check_dtype=False)
    assert described.dispatch is dispatch
