"""Snapshots of values, and the forms that make the values again."""

from __future__ import annotations

from collections import deque, namedtuple
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aotpipe.canonicalize.state import layouts
from aotpipe.canonicalize.state.layouts import Leaf, Slot
from aotpipe.model import object_graph

X = torch.ones(2)
Pair = namedtuple("Pair", "h c")  # noqa: PYI024  # what models use


def abstract_list(snapshot: layouts.Snapshot, name: str = "x") -> layouts.Node:
    """Every tensor a slot."""

    def form(leaf: Leaf, path: layouts.Path) -> Leaf | Slot:
        value = leaf.value
        if not isinstance(value, torch.Tensor):
            return Leaf(value)
        return Slot(value.dtype, tuple(value.shape), value.device, number=False, name=layouts.shown(path))

    return layouts.map_leaves(form, snapshot, (name,))


@pytest.mark.parametrize(
    "value",
    [
        [X, "name"],
        {"h": [X], 3: None},
        deque([X, 1], maxlen=2),
        (X, (1, X)),
        Pair(X, 2),
        {1, 2},
        SimpleNamespace(h=X, n=[1]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_form_makes_the_value_again(value: Any) -> None:
    before = repr(value)
    layout = abstract_list(layouts.snapshot_of(value))
    made = layouts.build(layout, lambda _: X)
    assert type(made) is type(value)
    assert repr(made) == before
    # What can be filled is the very object.
    assert (made is value) == (not isinstance(value, tuple))


def test_slots_are_named_by_their_paths_and_start_from_what_is_held() -> None:
    value = {"h": [X, X * 2]}
    snapshot = layouts.snapshot_of(value)
    layout = abstract_list(snapshot, "state")
    assert [slot.name for slot in layouts.slots_of(layout)] == ["state.h.0", "state.h.1"]
    first = {slot.name: tensor.tolist() for slot, tensor in layouts.initial(snapshot, layout)}
    assert first == {"state.h.0": [1, 1], "state.h.1": [2, 2]}


def test_what_holds_itself_is_looked_at_once() -> None:
    value: list[Any] = [1]
    value.append(value)
    assert [path for path, _ in layouts.leaves_of(layouts.snapshot_of(value), ())] == [("0",), ("1",)]


def test_pictures_tell_writes_apart() -> None:
    tensor = torch.zeros(2)
    before = layouts.snapshot_of([tensor])
    assert before == layouts.snapshot_of([tensor])
    tensor.add_(1)
    assert before != layouts.snapshot_of([tensor])


def test_a_number_is_no_equal_bool() -> None:
    assert Leaf(1) != Leaf(True)
    assert Leaf(1.0) == Leaf(1.0)
    assert object_graph.is_same(layouts.ABSENT, layouts.ABSENT)
