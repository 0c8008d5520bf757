"""A chain round-trips through JSON, and arguments are taken apart and put together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aotpipe.core.signature import Signature, Symbol, TensorSpec
from aotpipe.errors import SourceLine
from aotpipe.runtime.islands.chain import Chain, Island, Kind, Parts, Segment, pack, unpack

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
