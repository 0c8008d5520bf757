"""Arguments taken apart and put together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aotpipe.runtime.islands.templates import Kind, pack, unpack


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
