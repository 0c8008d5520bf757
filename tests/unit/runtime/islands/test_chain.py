"""A chain round-trips through JSON, arguments are taken apart and put together, and functions are found."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from aotpipe.core.signature import Signature, Symbol, TensorSpec
from aotpipe.errors import IslandNotFound, SourceLine
from aotpipe.islands.marking import eager_island
from aotpipe.runtime.islands.chain import (
    MARKS,
    Chain,
    Island,
    Kind,
    Parts,
    Segment,
    functions,
    mark_of,
    pack,
    unpack,
)
from tests.unit.islands import models

X = TensorSpec("x", "float32", ("n", 4))
ISLAND = Island(
    name="net:order",
    kind="function",
    where=SourceLine("net.py", 7),
    reason="numpy's sort",
    arrays="numpy",
    arguments={"list": [{"list": [{"tensor": 0}]}, {"dict": {"k": {"value": 2.5}}}]},
    result={"tensor": 0},
    inputs=("x",),
    outputs=(TensorSpec("island.0", "float32", ("n", 4)),),
)
HERE = replace(ISLAND, name="tests.unit.islands.models:order")
PARTS = Parts(
    signatures={"forward_0": Signature(inputs=(X,), outputs=(X,), symbols=(Symbol("n", 1, 8),))},
    asserts={"forward_0": ("positive",)},
    chains={
        "forward": Chain(
            steps=(ISLAND, Segment(entry_point="forward_0", inputs=("island.0",), outputs=("y",))),
            inputs={"x": "x"},
            outputs={"output": "y"},
            state={"count": ("b_count", "add")},
        )
    },
)


def test_json_gives_the_same_parts_back() -> None:
    assert Parts.from_json(json.loads(json.dumps(PARTS.to_json()))) == PARTS


def test_the_islands_are_listed_in_order() -> None:
    assert PARTS.islands == PARTS.chains["forward"].islands == (ISLAND,)


def kind_of(leaf: Any) -> Kind | None:
    if isinstance(leaf, bytearray):
        return "tensor"
    return "int" if type(leaf) is int else None


def no_leaf(kind: Kind, number: int) -> Any:
    raise AssertionError


VALUES = [
    bytearray(b"a"),
    [bytearray(b"a"), 3, {"k": (None, True, "t", 2.5)}],
    ((), [], {}),
    {"a": {"b": [1, 2, bytearray(b"c")]}},
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_what_is_packed_is_unpacked(value: Any) -> None:
    packed = pack(value, kind_of)
    kinds = {}

    def leaf(kind: Kind, number: int) -> Any:
        kinds[number] = kind
        return packed.leaves[number]

    assert unpack(json.loads(json.dumps(packed.template)), leaf) == value
    assert kinds == dict(enumerate(packed.kinds))


def test_what_is_neither_is_an_object() -> None:
    packed = pack([object, {3: 4}], kind_of)
    assert packed.objects == [object, {3: 4}]
    assert unpack(packed.template, no_leaf, packed.objects) == [object, {3: 4}]


def test_what_is_no_template_is_refused() -> None:
    with pytest.raises(ValueError, match="not a part of a template"):
        unpack({"other": 1}, no_leaf)


def test_a_marked_function_is_found_in_the_process_or_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    want = mark_of(models.order)
    assert want is not None
    assert functions([HERE]) == {HERE.name: want.function}
    monkeypatch.delitem(MARKS, HERE.name)
    assert functions([HERE]) == {HERE.name: want.function}


def test_what_is_given_comes_first() -> None:
    assert functions([HERE], {HERE.name: len}) == {HERE.name: len}


def test_an_op_is_found_in_torch() -> None:
    island = replace(ISLAND, name="aten.relu.default", kind="op")
    assert functions([island])["aten.relu.default"] is torch.ops.aten.relu.default


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("no_such_module:f", "function", "cannot be imported"),
        ("os:system", "function", "is not marked"),
        ("os:no_such", "function", "no_such"),
        ("aten.nothing.default", "op", "nothing"),
        ("aten.relu", "op", "no op"),
    ],
)
def test_what_a_host_lacks_or_must_not_be_named_is_refused(name: str, kind: str, message: str) -> None:
    with pytest.raises(IslandNotFound, match=message):
        functions([replace(ISLAND, name=name, kind=kind)])


def test_a_marked_function_is_found_by_its_name_and_by_itself():
    @eager_island(name="elsewhere:doubled", arrays="numpy", reason="a table")
    def doubled(x):
        return x * 2

    mark = mark_of(doubled)
    assert mark is MARKS["elsewhere:doubled"]
    assert (mark.function(3), mark.arrays, mark.reason) == (6, "numpy", "a table")
    assert mark_of(len) is None
