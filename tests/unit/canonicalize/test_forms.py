"""Pictures of values, and the forms that make the values again."""

from __future__ import annotations

from collections import deque, namedtuple
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aotpipe import held
from aotpipe.canonicalize import forms
from aotpipe.canonicalize.forms import Fixed, Seen, Slot, Tree

X = torch.ones(2)
Pair = namedtuple("Pair", "h c")  # noqa: PYI024  # what models use


def form_of(picture: forms.Picture, path: str = "x") -> forms.Node:
    """Every tensor a slot."""
    if isinstance(picture, Seen):
        value = picture.value
        if not isinstance(value, torch.Tensor):
            return Fixed(value)
        return Slot(path, value.dtype, tuple(value.shape), value.device, number=False)
    children = zip(picture.keys, picture.children, strict=False)
    inner = tuple(form_of(child, f"{path}.{key}") for key, child in children)
    return Tree(type(picture.live), picture.keys, inner, picture.live)


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
    form = form_of(forms.look(value))
    made = forms.build(form, lambda _: X)
    assert type(made) is type(value)
    assert repr(made) == before
    # What can be filled is the very object.
    assert (made is value) == (not isinstance(value, tuple))


def test_slots_are_named_by_their_paths_and_start_from_what_is_held() -> None:
    value = {"h": [X, X * 2]}
    picture = forms.look(value)
    form = form_of(picture, "state")
    assert [slot.name for slot in forms.slots_of(form)] == ["state.h.0", "state.h.1"]
    first = {slot.name: tensor.tolist() for slot, tensor in forms.initial(picture, form)}
    assert first == {"state.h.0": [1, 1], "state.h.1": [2, 2]}


def test_what_holds_itself_is_looked_at_once() -> None:
    value: list[Any] = [1]
    value.append(value)
    assert [path for path, _ in forms.leaves_of(forms.look(value), ())] == [("0",), ("1",)]


def test_pictures_tell_writes_apart() -> None:
    tensor = torch.zeros(2)
    before = forms.look([tensor])
    assert before == forms.look([tensor])
    tensor.add_(1)
    assert before != forms.look([tensor])


def test_a_number_is_no_equal_bool() -> None:
    assert Fixed(1) != Fixed(True)
    assert Fixed(1.0) == Fixed(1.0)
    assert held.is_same(forms.ABSENT, forms.ABSENT)
