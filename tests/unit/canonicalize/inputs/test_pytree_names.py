"""Names of inputs and outputs."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.canonicalize.inputs import pytrees
from aotpipe.core.signature import TensorSpec
from aotpipe.errors import SpecInvalid

T = torch.ones(1)
Pair = namedtuple("Pair", "a b")  # noqa: PYI024 the plain form is what users have


def call(x: Any, batch: Any = None, *rest: Any, flag: bool = True, **more: Any) -> None: ...


def test_inputs_are_named_by_their_parameters() -> None:
    leaves = pytrees.input_leaves(call, (T, {"mask": T, "ids": [T]}, T, (T,)), {"flag": False, "extra": T})
    assert [".".join(path) for path, _ in leaves] == [
        "x",
        "batch.mask",
        "batch.ids.0",
        "rest.0",
        "rest.1.0",
        "flag",
        "extra",
    ]


def test_functions_of_c_have_positional_names() -> None:
    assert pytrees.input_leaves(torch.relu, (T,), {})[0][0] == ("args", "0")


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (T, ["output"]),
        ((T, T), ["output.0", "output.1"]),
        ([T, {"a": T}], ["output.0", "output.1.a"]),
        ({"logits": T, "hidden": (T, None)}, ["logits", "hidden.0", "hidden.1"]),
        (Pair(T, 3), ["a", "b"]),
        ((), []),
        (torch.Size([2, 3]), ["output.0", "output.1"]),
    ],
    ids=str,
)
def test_outputs_are_named_by_keys_and_fields(result: Any, expected: list[str]) -> None:
    assert list(pytrees.output_names(result)) == expected


@given(st.lists(st.text(max_size=8), max_size=6))
def test_names_are_unique_and_fit_a_signature(texts: list[str]) -> None:
    found = pytrees.unique(texts)
    assert len(set(found)) == len(texts)
    for name in found:
        spec = TensorSpec(name, "float32", (2,))
        assert TensorSpec.parse(str(spec)) == spec


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((T, T, T), {"x": T}), ((), {"batch": T})])
def test_examples_that_do_not_fit_are_refused_with_the_reason(args: Any, kwargs: Any) -> None:
    with pytest.raises(SpecInvalid) as caught:
        pytrees.check_call(call, args, kwargs, "forward")
    assert caught.value.reason
    assert caught.value.where is not None
