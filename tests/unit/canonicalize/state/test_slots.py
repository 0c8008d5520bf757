"""The forms that a model's Python state takes: slots, fixed values, phases, and what never settles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from aotpipe.canonicalize import example_call
from aotpipe.canonicalize.state import slots
from aotpipe.canonicalize.state.layouts import Leaf, Slot, initial, slots_of

X = torch.ones(2)


class Model(nn.Module):
    def __init__(self, step: Callable[[Any, torch.Tensor], object], **attributes: Any) -> None:
        super().__init__()
        self.step = step
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step(self, x)
        return x


def observed(model: nn.Module) -> slots.State:
    call = partial(example_call.again, model, (X,), {})
    with example_call.unchanged(model) as watch:
        call()
        changed = watch.unregistered()
    return slots.observe(model, [call], changed)


def count(model: Any, x: torch.Tensor) -> None:
    model.calls += 1


def test_a_counter_is_one_slot_of_its_name() -> None:
    model = Model(count, calls=2)
    found = observed(model)
    assert found.phases() == [(Slot(torch.int64, (), torch.device("cpu"), number=True, name="calls"),)]
    [(slot, first)] = initial(found.first[0], found.phases()[0][0])
    assert (slot.name, first.item(), model.calls) == ("calls", 2, 2)


def test_numbers_of_two_kinds_share_the_wider_dtype() -> None:
    def step(model: Any, x: torch.Tensor) -> None:
        model.total = model.total + 0.5

    [[slot]] = observed(Model(step, total=0)).phases()
    assert isinstance(slot, Slot)
    assert slot.dtype == torch.float64


def test_what_settles_is_fixed_in_each_phase() -> None:
    def step(model: Any, x: torch.Tensor) -> None:
        if model.cache is None:
            model.cache = x * 2
            model.size = 7
        model.cache = model.cache + model.size * x

    before, after = observed(Model(step, cache=None, size=0)).phases()
    assert before == (Leaf(None), Leaf(0))
    assert after == (Slot(torch.float32, (2,), torch.device("cpu"), number=False, name="cache"), Leaf(7))


def test_what_is_written_before_it_is_read_is_left_out() -> None:
    def step(model: Any, x: torch.Tensor) -> None:
        model.last = x * 2
        model.calls += int(model.last.numel() > 0)

    found = observed(Model(step, calls=0, last=None))
    assert [root.path for root in found.roots] == ["calls"]
    assert [root.path for root in found.unread] == ["last"]


def past_the_class(model: Any, x: torch.Tensor) -> None:
    model.last = x + object.__getattribute__(model, "last")


def past_attributes(model: Any, x: torch.Tensor) -> None:
    model.last = x + vars(model)["last"]


@pytest.mark.parametrize("step", [past_the_class, past_attributes])
def test_what_is_read_past_the_attribute_is_kept(step: Any) -> None:
    found = observed(Model(step, last=torch.zeros(2), other=None))
    assert [root.path for root in found.roots] == ["last"]


class Aliased(Model):
    """Reads its attributes by a method of its own."""

    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__("last" if name == "count" else name)


class Computed(Model):
    """Has a property over what it keeps."""

    @property
    def last(self) -> Any:
        return vars(self)["last"]

    @last.setter
    def last(self, value: Any) -> None:
        vars(self)["last"] = value


def step_count(model: Any, x: torch.Tensor) -> None:
    model.last = x + model.count


def step_last(model: Any, x: torch.Tensor) -> None:
    model.last = x + model.last


@pytest.mark.parametrize(("kind", "step"), [(Aliased, step_count), (Computed, step_last)])
def test_what_the_class_reads_in_its_own_way_is_kept(kind: Any, step: Any) -> None:
    found = observed(kind(step, last=torch.zeros(2)))
    assert [root.path for root in found.roots] == ["last"]


def grow_list(model: Any, x: torch.Tensor) -> None:
    model.rows.append(x)


def grow_cache(model: Any, x: torch.Tensor) -> None:
    model.rows = x if model.rows is None else torch.cat([model.rows, x])


def grow_set(model: Any, x: torch.Tensor) -> None:
    model.rows.add(len(model.rows))


def new_object(model: Any, x: torch.Tensor) -> None:
    model.rows = object() if model.rows is None else [object()][0]


@pytest.mark.parametrize(
    ("step", "first", "message"),
    [
        (grow_list, [], "grows in every call: it holds 1 values, then 2"),
        (grow_cache, None, r"grows in every call: its shape is \(2,\), then \(4,\)"),
        (new_object, None, "is another object after every call"),
        (grow_set, set(), "is another set after every call"),
    ],
)
def test_what_never_settles_is_refused(step: Any, first: Any, message: str) -> None:
    with pytest.raises(slots.StateRefused, match=message) as caught:
        observed(Model(step, rows=first))
    assert caught.value.root.path == "rows"
    assert caught.value.hint


def test_slots_of_one_path_and_several_shapes_have_names_of_their_own() -> None:
    def step(model: Any, x: torch.Tensor) -> None:
        model.rows = torch.cat([model.rows, x])[-4:]

    phases = observed(Model(step, rows=torch.zeros(1))).phases()
    names = [slot.name for layout in phases for node in layout for slot in slots_of(node)]
    assert names == ["rows", "rows.1", "rows.2"]


def test_a_second_name_of_a_registered_buffer_is_refused() -> None:
    def step(model: Any, x: torch.Tensor) -> None:
        model.rows[0].add_(x)

    model = Model(step)
    model.register_buffer("mean", torch.zeros(2))
    model.rows = [model.mean]
    with pytest.raises(slots.StateRefused, match=r"`rows\.0` is a second name of a parameter or a buffer"):
        observed(model)


def test_a_tensor_of_two_names_is_one_slot() -> None:
    def step(model: Any, x: torch.Tensor) -> None:
        model.a.add_(model.b)

    shared = torch.ones(2)
    [phase] = observed(Model(step, a=shared, b=shared)).phases()
    assert [slot.name for node in phase for slot in slots_of(node)] == ["a", "a"]
