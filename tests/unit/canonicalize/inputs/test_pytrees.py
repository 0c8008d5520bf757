"""Nested trees: leaves with names, and classes that become known to torch."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.inputs import pytrees
from aotpipe.errors import SpecInvalid

Pair = namedtuple("Pair", "a b")  # noqa: PYI024 the plain form is what users have
T = torch.ones(2)


@dataclass
class Batch:
    ids: torch.Tensor
    mask: torch.Tensor | None = None
    steps: int = 3


@dataclass(frozen=True)
class Frozen:
    y: torch.Tensor
    inner: dict[str, Any]


@dataclass
class Computed:
    x: torch.Tensor
    twice: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.twice = self.x * 2


class Slots:
    __slots__ = ("__private", "x")

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x
        self.__private = 1

    def private(self) -> int:
        return self.__private


class Layer:
    def __init__(self) -> None:
        self.keys, self.name, self.window = T + 1, "layer", None


class Cache:
    def __init__(self) -> None:
        self.layers = [Layer(), Layer()]
        self.length = 2


class Items(dict[str, Any]):
    pass


class UnbackedItems(list[Any]):
    pass


def names(tree: Any) -> list[str]:
    pytrees.register(tree)
    return [pytrees.dotted(path) for path, _ in pytrees.leaves(tree)]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (T, [""]),
        ({"a": [T, None], "b": (3,)}, ["a.0", "a.1", "b.0"]),
        (Pair(T, 1), ["a", "b"]),
        (OrderedDict(z=T, a=T), ["z", "a"]),
        (Batch(T), ["ids", "steps"]),
        (Frozen(T, {"k": T, "n": Pair(T, 2)}), ["y", "inner.k", "inner.n.a", "inner.n.b"]),
        (Computed(T), ["x", "twice"]),
        (Slots(T), ["x"]),
        (Cache(), ["layers.0.keys", "layers.1.keys"]),
        (Items(x=T, label="s"), ["x"]),
        (UnbackedItems([T, 1, T]), ["0", "2"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_leaves_are_named_and_rebuilt(tree: Any, expected: list[str]) -> None:
    assert names(tree) == expected
    copied = pytrees.clone_tensors(tree)
    assert type(copied) is type(tree)
    assert names(copied) == expected
    for (_, one), (_, other) in zip(pytrees.leaves(tree), pytrees.leaves(copied), strict=True):
        if isinstance(one, torch.Tensor):
            assert one is not other
            assert torch.equal(one, other)
        else:
            assert one == other


def test_what_is_no_tensor_travels_with_the_object() -> None:
    for tree in (Cache(), Slots(T)):
        pytrees.register(tree)
    copied = pytrees.clone_tensors(Cache())
    assert (copied.length, copied.layers[0].name, copied.layers[0].window) == (2, "layer", None)
    assert pytrees.clone_tensors(Slots(T)).private() == 1
    rows = UnbackedItems([T, 1, T])
    pytrees.register(rows)
    assert pytrees.clone_tensors(rows)[1] == 1


def test_order_is_torchs() -> None:
    tree = {"b": [T, 1], "a": Batch(T)}
    pytrees.register(tree)
    ours, theirs = [leaf for _, leaf in pytrees.leaves(tree)], pytree.tree_leaves(tree)
    assert len(ours) == len(theirs)
    assert all(one is other for one, other in zip(ours, theirs, strict=True))


def test_a_class_that_is_registered_is_left_alone() -> None:
    class Known:
        def __init__(self, x: torch.Tensor) -> None:
            self.x = x

    pytree.register_pytree_node(Known, lambda k: ([k.x], None), lambda children, _: Known(*children))
    assert names(Known(T)) == ["0"]


def test_an_object_without_tensors_is_a_leaf() -> None:
    class Config:
        size = 3

    config = Config()
    assert names(config) == [""]
    assert [leaf for _, leaf in pytrees.unsupported({"c": config, "x": T, "n": None})] == [config]


def test_an_object_that_holds_itself_is_refused() -> None:
    class Node:
        def __init__(self) -> None:
            self.x, self.me = T, self

    with pytest.raises(SpecInvalid, match="holds itself"):
        pytrees.register(Node())


def test_shapes_of_a_registered_class_are_a_list_of_children() -> None:
    tree = {"batch": Batch(T), "x": (T,)}
    pytrees.register(tree)
    shapes = pytrees.map_children_first(lambda leaf: type(leaf).__name__, tree)
    assert shapes == {"batch": ["Tensor", "int"], "x": ("Tensor",)}


def test_equal_structures_have_equal_specs() -> None:
    pytrees.register(Cache())
    assert pytree.tree_structure(Cache()) == pytree.tree_structure(Cache())
    other = Cache()
    other.layers.pop()
    assert pytree.tree_structure(Cache()) != pytree.tree_structure(other)


def test_transformers_outputs_and_caches_have_names() -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_outputs import CausalLMOutputWithPast

    cache = transformers.DynamicCache()
    cache.update(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2), 0)
    result = CausalLMOutputWithPast(logits=T, past_key_values=cache)
    found = names(result)
    assert found[0] == "logits"
    assert len(found) == 3
    assert all(name.startswith("past_key_values.") for name in found[1:])
    assert isinstance(result, Mapping)
