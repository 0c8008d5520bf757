"""Examples that differ in what they have become one structure, and what does not fit is said at its name."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from aotpipe.canonicalize.inputs.structure import MISSING, Structure, unite
from aotpipe.errors import SpecInvalid

X = torch.ones(2, 3)
IDS = torch.zeros(2, dtype=torch.int64)


@dataclass
class Batch:
    x: torch.Tensor
    mask: torch.Tensor | None = None


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0
        self.inner = nn.Identity()
        self.inner.depth = 3  # type: ignore[assignment]

    def forward(self, batch, mask=None, mode="sum", *more, k=3, **rest):
        return batch, mask, mode, more, k, rest


MODEL = Model()


def united(*examples: tuple[tuple[Any, ...], dict[str, Any]], **options: Any) -> Structure:
    return unite(MODEL.forward, MODEL, examples, **options)


def rebuilt(structure: Structure, **flags: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call that lacks what flags say."""
    lacking = {name.replace("_", ".") + ".present" for name, there in flags.items() if not there}
    return structure.arguments(
        structure.example(),
        number=lambda tensor: tensor.item(),
        part=lambda part, built: part.absent if part.flag in lacking else built(),
        mapping=lambda kind, items: kind(items),
    )


def test_keys_arguments_and_keywords_that_not_all_have_are_optional():
    found = united(
        (({"x": X, "ids": IDS},), {}), (({"x": X},), {"mask": X}), (({"x": X},), {"extra": X, "mode": "sum"})
    )
    assert list(found.example()) == [
        *("batch.x", "batch.ids", "mask", "extra"),
        *("batch.ids.present", "mask.present", "extra.present"),
    ]
    assert found.constants == {"mode": "sum"}
    presences = {part.name: part for part in found.presences()}
    assert (presences["mask"].absent, presences["extra"].absent) == ("none", "missing")
    assert presences["batch.ids"].members == ("batch.ids",)
    args, kwargs = rebuilt(found, batch_ids=False, mask=False, extra=False)
    assert list(args[0]) == ["x"]
    assert args[1:] == (None, "sum")
    assert kwargs == {}
    args, kwargs = rebuilt(found)
    assert args[0].keys() == {"x", "ids"}
    assert kwargs["extra"] is X


def test_containers_may_be_optional_as_a_whole_and_in_part():
    found = united(
        (({"x": X, "more": {"a": X, "b": X}},), {}), (({"x": X, "more": {"a": X}},), {}), (({"x": X},), {})
    )
    outer, inner = found.presences()
    assert (outer.name, inner.name) == ("batch.more", "batch.more.b")
    assert set(outer.members) == {"batch.more.a", "batch.more.b", "batch.more.b.present"}
    assert found.parts[0].absent is MISSING


def test_a_dataclass_a_list_and_an_ordered_dict():
    found = united(
        (((Batch(X, X), [X, X], OrderedDict(a=X)),), {}), (((Batch(X), [X, None], OrderedDict()),), {})
    )
    names = ["batch.0.x", "batch.0.mask", "batch.1.0", "batch.1.1", "batch.2.a"]
    assert list(found.example())[:5] == names
    (batch, items, ordered), *_ = rebuilt(found)[0]
    assert isinstance(batch, Batch)
    assert batch.mask is X
    assert type(items) is list
    assert type(ordered) is OrderedDict


def test_what_is_named_is_optional_and_numbers_vary():
    found = united(
        (({"x": X},), {"mask": X, "k": 4}),
        optional=("batch.x",),
        tensorize=("k", "self.scale", "self.inner.depth"),
    )
    assert {part.name for part in found.parts} == {"batch.x"}
    inputs = found.example()
    assert (inputs["k"].dtype, inputs["self.scale"].dtype) == (torch.int64, torch.float32)
    assert [attribute.value for attribute in found.attributes] == [2.0, 3]
    assert rebuilt(found)[1] == {"k": 4}


def test_a_parameter_of_another_default_than_none():
    found = united((({"x": X},), {"k": 4}), (({"x": X},), {}), tensorize=("k",))
    assert found.parts[0].absent == 3
    assert rebuilt(found, k=False)[1] == {"k": 3}


def test_examples_that_are_alike_are_plain():
    assert united((({"x": X},), {}), (({"x": X + 1},), {})).is_plain


@pytest.mark.parametrize(
    ("first", "second", "options", "message"),
    [
        ({"x": X}, {"x": IDS}, {}, "'batch.x' is a tensor of float32 with 2 dims in one example and"),
        ({"x": X}, {"x": [X]}, {}, "a list in another"),
        ({"x": [X]}, {"x": [X, X]}, {}, "a list of 0, 1 in another"),
        ({"x": X, "n": 1}, {"x": X, "n": 2}, {}, "'batch.n' is 1 in one example and 2"),
        ({"x": X, "n": X}, {"x": X, "n": 2}, {}, "'batch.n' is a tensor of float32 with 2 dims in one"),
        ({"x": X}, {"x": X}, {"optional": ("batch.y",)}, "optional names 'batch.y', which no example has"),
        ({"x": X}, {"x": X}, {"tensorize": ("batch.x",)}, "tensorize names 'batch.x', which no"),
        ({"x": X}, {"x": X}, {"tensorize": ("self.inner",)}, "no number that the model holds"),
        ({"x": X, "n": "a"}, {"x": X, "n": "a"}, {"tensorize": ("batch.n",)}, "which is 'a'"),
    ],
)
def test_what_does_not_fit_is_said(first, second, options, message):
    with pytest.raises(SpecInvalid, match=message):
        united(((first,), {}), ((second,), {}), **options)


def test_left_out_in_two_ways():
    with pytest.raises(SpecInvalid, match="is left out in one example and None in another"):
        united((({"x": X},), {}), (({"x": None},), {}), (({},), {}))
