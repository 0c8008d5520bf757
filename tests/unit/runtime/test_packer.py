"""Packing and unpacking: `unpack(pack(batch)) == batch` for every subset of what is optional."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.core.signature import Constant, Presence, Signature, Symbol, TensorSpec
from aotpipe.errors import InputShape, InputValue, MissingInput, UnknownInput
from aotpipe.runtime.input_checks import Checker, Packer, presence_cases

TOKENS = TensorSpec("batch.tokens", "int64", ("batch", "seq"), (0, 31))
IDS = TensorSpec("batch.ids", "int32", ("batch", "seq"), (3, 9))
EXTRA = TensorSpec("batch.extra.a", "float32", ("batch", "other"))
INNER = TensorSpec("batch.extra.b", "float16", (2,))
FLAGS = tuple(TensorSpec(f"{n}.present", "bool", ()) for n in ("batch.ids", "batch.extra", "batch.extra.b"))
SIGNATURE = Signature(
    inputs=(TOKENS, IDS, EXTRA, INNER, *FLAGS, Constant("batch.mode", 3)),
    outputs=(
        TensorSpec("y", "float32", ("batch",)),
        TensorSpec("aux", "float32", ()),
        TensorSpec("aux.present", "bool", ()),
    ),
    symbols=(Symbol("batch", 1, 4), Symbol("seq", 2, 8), Symbol("other", 5, 6)),
    optional=(
        Presence("batch.ids", "batch.ids.present", ("batch.ids",)),
        Presence(
            "batch.extra",
            "batch.extra.present",
            ("batch.extra.a", "batch.extra.b.present", "batch.extra.b"),
            "none",
        ),
        Presence("batch.extra.b", "batch.extra.b.present", ("batch.extra.b",)),
    ),
    optional_outputs=(Presence("aux", "aux.present", ("aux",), "none"),),
)
PACKER = Packer(SIGNATURE)


@dataclass
class Extra:
    a: Any
    b: Any = None


def batch(keys: tuple[str, ...] = (), rows: int = 2, length: int = 3) -> dict[str, np.ndarray[Any, Any]]:
    """A flat batch with some of the optional parts."""
    every = {
        "batch.ids": np.full((rows, length), 4, np.int32),
        "batch.extra.a": np.ones((rows, 6), np.float32),
        "batch.extra.b": np.zeros(2, np.float16),
    }
    return {"batch.tokens": np.ones((rows, length), np.int64), **{key: every[key] for key in keys}}


OPTIONAL = (
    (),
    ("batch.ids",),
    ("batch.extra.a",),
    ("batch.extra.a", "batch.extra.b"),
    ("batch.ids", "batch.extra.a"),
    ("batch.ids", "batch.extra.a", "batch.extra.b"),
)


@given(st.sampled_from(OPTIONAL), st.integers(1, 4), st.integers(2, 8))
def test_what_is_packed_is_unpacked(keys: tuple[str, ...], rows: int, length: int) -> None:
    given = batch(keys, rows, length)
    packed = PACKER.pack(given)
    assert set(packed) == {spec.name for spec in SIGNATURE.tensor_inputs}
    arrays, sizes = Checker(SIGNATURE).check(packed)
    assert (sizes["batch"], sizes["seq"]) == (rows, length)
    assert len(arrays) == len(packed)
    unpacked = PACKER.unpack(packed)
    assert unpacked.keys() == given.keys()
    for name, array in given.items():
        np.testing.assert_array_equal(unpacked[name], array)


def test_what_is_left_out_has_sizes_of_the_rest_and_values_in_range() -> None:
    packed = PACKER.pack(batch(rows=4, length=7))
    assert np.shape(packed["batch.ids"]) == (4, 7)
    assert np.all(np.asarray(packed["batch.ids"]) == 3)
    assert np.shape(packed["batch.extra.a"]) == (4, 5)
    larger = Packer(SIGNATURE, {"other": 6}).pack(batch(rows=4))
    assert np.shape(larger["batch.extra.a"]) == (4, 6)
    assert not packed["batch.ids.present"]


@pytest.mark.parametrize(
    "extra",
    [
        {"a": np.ones((2, 6), np.float32), "b": None},
        Extra(np.ones((2, 6), np.float32)),
        namedtuple("Pair", "a b")(np.ones((2, 6), np.float32), None),  # noqa: PYI024
    ],
)
def test_a_batch_may_be_nested(extra: object) -> None:
    flat = batch()
    given = {"batch": {"tokens": flat["batch.tokens"], "mode": 3, "ids": None, "extra": extra}}
    packed = PACKER.pack(given)
    assert PACKER.unpack(packed).keys() == {"batch.tokens", "batch.extra.a"}
    without = PACKER.pack({"batch": {"tokens": flat["batch.tokens"], "extra": None}})
    assert not without["batch.extra.present"]
    assert Checker(SIGNATURE).check(given)[1]["batch"] == 2


def test_a_list_is_numbered() -> None:
    images = tuple(TensorSpec(f"images.{index}", "float32", (2,)) for index in range(2))
    checker = Checker(Signature(inputs=images, outputs=()))
    arrays, _ = checker.check({"images": [np.zeros(2, np.float32), np.ones(2, np.float32)]})
    assert arrays[1][0] == 1


def test_a_call_with_flags_is_packed_already() -> None:
    packed = PACKER.pack(batch())
    assert PACKER.pack(packed) == packed
    outputs = {"y": np.zeros(2, np.float32), "aux": np.array(1.0), "aux.present": np.array(False)}
    checker = Checker(SIGNATURE)
    assert checker.unpacked(packed, outputs) == outputs
    assert checker.unpacked(batch(), outputs).keys() == {"y"}
    assert PACKER.unpack(outputs, flags=True).keys() == {"y", "aux.present"}
    assert PACKER.unpack({**outputs, "aux.present": np.array(True)}).keys() == {"y", "aux"}


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(MissingInput, match=r"batch\.tokens"):
        PACKER.pack({})
    with pytest.raises(MissingInput, match=r"batch\.extra\.a"):
        PACKER.pack(batch(("batch.extra.b",)))
    with pytest.raises(InputShape, match="seq"):
        PACKER.pack({**batch(), "batch.ids": np.full((2, 4), 4, np.int32)})
    with pytest.raises(InputValue, match="fixed to 3"):
        PACKER.pack({**batch(), "batch.mode": 4})
    with pytest.raises(UnknownInput, match=r"batch\.id'"):
        Checker(SIGNATURE).check({**batch(), "batch.id": np.zeros(1)})


def test_every_combination_is_tried_or_the_telling_ones() -> None:
    every = presence_cases(SIGNATURE.optional, 16)
    assert every[0] == dict.fromkeys(
        ("batch.ids.present", "batch.extra.present", "batch.extra.b.present"), True
    )
    # Of an absent part no part is there.
    assert len(every) == 6
    assert all(case["batch.extra.present"] or not case["batch.extra.b.present"] for case in every)
    many = tuple(Presence(f"p{n}", f"f{n}", (f"p{n}",)) for n in range(6))
    cases = presence_cases(many, 16)
    assert len(cases) == 14
    assert {sum(case.values()) for case in cases} == {0, 1, 5, 6}
    assert presence_cases((), 16) == [{}]
