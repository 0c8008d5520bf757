"""dynamic_shapes in all their forms, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotpipe.canonicalize.inputs import dynamic_shapes
from aotpipe.core.dims import AUTO, Auto, Dim
from aotpipe.errors import SpecInvalid
from aotpipe.model.spec import EntryPoint

B = Dim("b", max=64)
LEAVES: list[dynamic_shapes.Leaf] = [
    (("x",), torch.ones(4, 3)),
    (("batch", "mask"), torch.ones(4)),
    (("batch", "ids", "0"), torch.ones(8)),
    (("n",), 5),
    (("flag",), True),
]
NAMES = ["x", "batch.mask", "batch.ids.0", "n", "flag"]


def resolve(given: Any) -> Any:
    return dynamic_shapes.resolve(EntryPoint(dynamic_shapes=given), LEAVES, NAMES)


T = torch.export.Dim


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {}),
        ({}, {}),
        ({"x": None, "batch": None}, {}),
        ({"x": {0: B}}, {"x": {0: B}}),
        ({"x": {-1: B}}, {"x": {1: B}}),
        ({"x": (B, None)}, {"x": {0: B}}),
        ({"batch.mask": {0: B}}, {"batch.mask": {0: B}}),
        ({"batch": {"mask": [B], "ids": [{0: 2 * B}]}}, {"batch.mask": {0: B}, "batch.ids.0": {0: 2 * B}}),
        ({"batch": {"ids.0": {0: AUTO}}}, {"batch.ids.0": {0: AUTO}}),
        ({"batch.ids": [{0: AUTO}]}, {"batch.ids.0": {0: AUTO}}),
        (({0: B}, {"mask": None, "ids": None}, None, None), {"x": {0: B}}),
        (({0: B}, ({0: B}, None), 5, None), {"x": {0: B}, "batch.mask": {0: B}}),
        ({"n": AUTO}, {"n": {0: AUTO}}),
        ({"n": Dim("n")}, {"n": {0: Dim("n")}}),
        ({"x": {0: 4, 1: 3}}, {}),
        ({"x": {0: T("t", min=2, max=9)}}, {"x": {0: Dim("t", 2, 9)}}),
        ({"x": {0: T("t")}}, {"x": {0: Dim("t", 1, None)}}),
        ({"x": {0: 2 * T("t", max=9)}}, {"x": {0: 2 * Dim("t", 1, 9)}}),
        ({"x": {0: T.AUTO(max=9), 1: T.STATIC}}, {"x": {0: Auto(None, 9)}}),
        ({"batch.mask": {0: T.DYNAMIC}}, {"batch.mask": {0: Dim("batch_mask_0")}}),
    ],
)
def test_forms(given: Any, expected: Any) -> None:
    assert resolve(given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"y": {0: B}}, "names 'y', which is no input"),
        ({"batch": {"maks": {0: B}}}, "names 'batch.maks', which is no input"),
        ({"x": {2: B}}, "names axis 2"),
        ({"x": {"0": B}}, "names axis '0'"),
        ({"x": (B,)}, "has 1 axes, the example 2"),
        ({"x": B}, "is a Dim"),
        ({"x": {0: "batch"}}, "holds a str"),
        ({"x": {0: True}}, "holds a bool"),
        (({0: B},), "has 1 parts for 4 inputs"),
        ({"flag": AUTO}, "the example is a bool"),
        ({"x": {0: 5}}, "fixes x_0 at 5, but the example has 4"),
        ({"x": {0: Dim("b", 5, 9)}}, "is 4, but `b` admits 5..9"),
        ({"x": {1: 2 * B}}, "is 3, but `2\\*b` admits 2..128 in steps of 2"),
        ({"x": {0: B, 1: B}}, "gives 'b' two values: 4 at x.shape\\[0\\], 3 at x.shape\\[1\\]"),
        ({"x": {0: B}, "batch.mask": {0: Dim("b", 2, 64)}}, "two Dims are called 'b' and differ"),
        (B, "is a Dim"),
    ],
)
def test_refusals(given: Any, message: str) -> None:
    with pytest.raises(SpecInvalid, match=message):
        resolve(given)


def test_the_nearest_input_is_named() -> None:
    with pytest.raises(SpecInvalid) as caught:
        resolve({"batch": {"maks": {0: B}}})
    assert caught.value.hint == "did you mean 'batch.mask'?"
