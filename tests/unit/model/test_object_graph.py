"""What a model holds in Python, and what a call changed of it."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from aotpipe.model import object_graph


@dataclass
class Record:
    count: int = 0
    rows: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    count: int = 0


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.record = Record()
        self.slotted = Slotted()
        self.space = SimpleNamespace(a=1)
        self.table = {"k": [torch.zeros(2)]}
        self.window = deque([1, 2], maxlen=2)
        self.plain = torch.zeros(2)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("late", None)
        self.inner = nn.Linear(2, 2)


def _set(name: str, value: Any) -> Any:
    return lambda model: setattr(model, name, value)


CHANGES = {
    "calls": _set("calls", 1),
    "record": lambda model: model.record.rows.append(1),
    "slotted": lambda model: setattr(model.slotted, "count", 3),
    "space": lambda model: setattr(model.space, "a", 2),
    "table": lambda model: model.table["k"][0].add_(1),
    "window": lambda model: model.window.append(3),
    "plain": lambda model: model.plain.add_(1),
    "late": _set("late", torch.ones(2)),
    "new": _set("new", 1),
    "inner.seen": lambda model: setattr(model.inner, "seen", True),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen_and_taken_back(name: str) -> None:
    model = Model()
    watch = object_graph.Watch(model)
    assert watch.changed() == []
    CHANGES[name](model)
    assert [root.path for root in watch.changed()] == [name]
    assert [root.path for root in watch.unregistered()] == [name]
    watch.restore()
    # What was written into tensors stays.
    assert [root.path for root in watch.changed()] == ([name] if name in ("table", "plain") else [])


@pytest.mark.parametrize("change", [lambda held: held.append(1), lambda held: held[1]["n"].add_(1)])
def test_a_change_is_seen_under_each_name_of_what_holds_it(change: Callable[[Any], object]) -> None:
    model = nn.Module()
    model.first = [0, {"n": torch.zeros(())}]
    model.second = (model.first, 1)
    model.other = [0]
    model.inner = nn.Module()
    model.inner.third = {"held": [model.first]}
    watch = object_graph.Watch(model)
    change(model.first)
    assert {root.path for root in watch.changed()} == {"first", "second", "inner.third"}


def test_a_registered_buffer_is_torchs_to_follow() -> None:
    model = Model()
    watch = object_graph.Watch(model)
    model.mean.add_(1)
    assert watch.changed() == []
    model.mean = torch.ones(2)
    assert [root.path for root in watch.changed()] == ["mean"]
    assert watch.unregistered() == []
    model.mean = torch.ones(2, 2)
    assert [root.path for root in watch.unregistered()] == ["mean"]


def test_an_equal_number_is_no_change() -> None:
    model = Model()
    model.calls = float("nan")
    watch = object_graph.Watch(model)
    model.calls = float("nan") * 1
    assert watch.changed() == []


def test_modules_and_objects_are_found_behind_containers() -> None:
    model = Model()
    model.table["net"] = [nn.Sequential(nn.Linear(1, 1))]
    paths = object_graph.modules_of(model)
    assert [path for path in paths if path] == ["inner", "table.net.0", "table.net.0.0"]
    assert model.record in object_graph.reached(model)[1]


def test_what_libraries_make_is_not_looked_into() -> None:
    assert not object_graph.is_object(torch.Generator())
    assert not object_graph.is_object(torch.dtype)
    assert not object_graph.is_object((1, 2))


def test_what_torch_keeps_of_recurrent_layers_is_no_change() -> None:
    model = nn.GRU(2, 2)
    watch = object_graph.Watch(model)
    model.weight_ih_l0 = nn.Parameter(torch.zeros(6, 2))
    assert watch.changed() == []


def test_a_dict_of_a_class_of_its_own_is_let_be() -> None:
    class Making(dict[str, type]):
        """Makes an object of the class that it holds, as transformers' table of activations does."""

        def __getitem__(self, key: str) -> Any:
            return super().__getitem__(key)()

        def values(self) -> Any:
            return [self[key] for key in self]

    model = Model()
    model.table = Making(relu=nn.ReLU)
    watch = object_graph.Watch(model)
    assert watch.changed() == []
    watch.restore()
    assert isinstance(model.table["relu"], nn.ReLU)


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, {1, 2}, deque([1], maxlen=2), Record(2), Slotted(4)])
def test_contents_fill_the_same_object_again(value: Any) -> None:
    items = object_graph.contents(value)
    before = repr(value)
    object_graph.refill(value, type(items)())
    assert repr(object_graph.contents(value)) == repr(type(items)())
    object_graph.refill(value, items)
    assert repr(value) == before


def test_numbers_that_compute_otherwise_are_not_the_same() -> None:
    assert not object_graph.is_same(0.0, -0.0)
    assert not object_graph.is_same(1, True)
    assert object_graph.is_same(float("nan"), -float("nan"))
    assert object_graph.is_same(0.5, 1 / 2)


def test_shapes_of_the_same_numbers_are_the_same() -> None:
    assert object_graph.is_same(torch.Size([3, 4]), torch.Size([3, 4]))
    assert not object_graph.is_same(torch.Size([3, 4]), torch.Size([4, 3]))
    assert not object_graph.is_same(torch.Size([3]), (3,))


def test_records_of_equal_contents_are_equal() -> None:
    def recorded(value: object) -> object_graph.Record[str]:
        record: object_graph.Record[str] = object_graph.Record(is_entered=lambda _: True)
        record.add("", value)
        return record

    inner = nn.Linear(1, 1)
    shared = [1]
    first = recorded([shared, shared, (inner, "a")])
    assert first == recorded([other := [1], other, (inner, "a")])
    assert first != recorded([[1], [1], (inner, "a")])
    assert first != recorded([shared, shared, (inner, "b")])
    inner.calls = 1
    assert first != recorded([shared, shared, (inner, "a")])


def test_a_linked_list_may_be_longer_than_the_stack_of_python() -> None:
    last: list[Any] = []
    nodes = last
    for _ in range(10_000):
        nodes = [nodes]
    record: object_graph.Record[str] = object_graph.Record()
    record.add("nodes", nodes)
    last.append(1)
    assert record.changed() == [("nodes", [1])]


@pytest.mark.parametrize("value", [np.zeros(2), np.zeros(()), np.arange(4).reshape(2, 2).T], ids=repr)
def test_an_array_is_put_back(value: Any) -> None:
    record: object_graph.Record[str] = object_graph.Record()
    record.add("value", value)
    before = object_graph.contents(value)
    value[...] = 1 - value
    assert record.changed() == [("value", value)]
    record.restore()
    assert object_graph.contents(value) == before


def test_an_iterator_that_is_asked_for_nothing_is_no_change() -> None:
    record: object_graph.Record[str] = object_graph.Record()
    held = [iter([1]), itertools.cycle([1]), zip([1], [2], strict=True), enumerate("ab"), (n for n in [1])]
    record.add("held", held)
    assert record.changed() == []
    for each in held:
        next(each)
        assert record.changed()
        record = object_graph.Record()
        record.add("held", held)


class Answering:
    """Answers for every name, as the handles of C libraries do."""

    def __getattr__(self, name: str) -> Any:
        return lambda: name

    __slots__ = ()


def test_a_handle_that_has_every_attribute_is_no_object() -> None:
    assert object_graph.own_dict(Answering()) is None
    assert not object_graph.is_object(Answering())
    assert object_graph.contents(Answering()) == {}


class Untold:
    def __str__(self) -> str:
        raise AttributeError("no text")

    __repr__ = __str__


def test_keys_that_have_no_text_have_a_name():
    """The text of an object is code of the model's own."""
    assert object_graph.names_of([1, "a", Untold()]) == ["1", "a", "Untold[2]"]


def test_keys_of_one_text_have_two_names():
    module = torch.nn.Module()
    module.table = {1: torch.nn.Linear(1, 1), "1": torch.nn.Linear(1, 1)}
    assert len(object_graph.modules_of(module)) == 3
