"""The form that a variable's values on several paths have in common."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.canonicalize.values.abstract_values import UNDEFINED, Incompatible, Leaf, join_values

FLOAT, INT = torch.zeros(2), torch.zeros(2, dtype=torch.int32)


@pytest.mark.parametrize(
    ("values", "dtype", "shape"),
    [
        ((FLOAT, FLOAT + 1), torch.float32, (2,)),
        ((FLOAT, INT), torch.float32, (2,)),
        ((1, 2), torch.int64, ()),
        ((1, 2.5), torch.float32, ()),
        ((True, 2), torch.int64, ()),
        ((True, False), torch.bool, ()),
        ((INT.sum(), 3), torch.int64, ()),
        ((torch.tensor(1, dtype=torch.int8), 3), torch.int8, ()),
        ((torch.tensor(1, dtype=torch.int8), 3.5), torch.float32, ()),
        ((torch.tensor(1.0, dtype=torch.float64), 3), torch.float64, ()),
        ((UNDEFINED, FLOAT), torch.float32, (2,)),
    ],
)
def test_tensors_in_place_of_what_differs(
    values: tuple[Any, ...], dtype: torch.dtype, shape: tuple[int, ...]
):
    [leaf] = join_values(values).leaves
    assert isinstance(leaf, Leaf)
    assert (leaf.dtype, leaf.shape) == (dtype, shape)
    for value in values:
        (made,) = leaf.of(value)
        assert (made.dtype, made.shape) == (dtype, shape)
        if not isinstance(value, type(UNDEFINED)):
            torch.testing.assert_close(made, torch.as_tensor(value), check_dtype=False)


@pytest.mark.parametrize("value", [1, "text", None, (1, "a"), {"a": None}, FLOAT, [FLOAT, 2]])
def test_what_is_the_same_stays(value: Any):
    abstract = join_values([value, value])
    assert not [leaf for leaf in abstract.leaves if isinstance(leaf, Leaf)]
    assert abstract.value(iter(()).__next__) == value if not isinstance(value, torch.Tensor) else True


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((None, range(2)), "is None on one path and a range on another"),
        (("a", 1), "is 'a' on one path and 1 on another"),
        (([FLOAT], [FLOAT, FLOAT]), "is a list of 1 on one path and a list of 2 on another"),
        ((FLOAT, torch.zeros(3, 1)), r"has the shapes \(2\) and \(3, 1\) on different paths"),
    ],
)
def test_what_has_no_common_form(values: tuple[Any, ...], said: str):
    with pytest.raises(Incompatible, match=said):
        join_values(values)


def test_one_size_that_differs_has_room_for_the_largest():
    short, long = torch.ones(2, 3), torch.full((4, 3), 2.0)
    abstract = join_values((short, long))
    ((leaf, _),) = abstract.parts(short)
    assert (leaf.shape, leaf.cut) == ((4, 3), 0)
    for value in (short, long):
        assert torch.equal(abstract.value(iter(abstract.tensors(value)).__next__), value)
    with pytest.raises(Incompatible, match="has the shapes"):
        join_values((torch.zeros(2, 3), torch.zeros(3, 2)))


NUMBERS = st.booleans() | st.integers(-1000, 1000) | st.floats(-1000, 1000, width=32)


@given(NUMBERS, NUMBERS, st.sampled_from([torch.float32, torch.int32, torch.float64]))
def test_a_number_that_became_a_tensor_promotes_as_the_number(left: Any, right: Any, dtype: torch.dtype):
    abstract = join_values([left, right])
    x = torch.ones(3, dtype=dtype)
    for value in (left, right):
        tensors = iter(abstract.tensors(value))
        now = abstract.value(tensors.__next__)
        want, got = x * left + x * right, x * now
        if type(left) is type(right):
            assert got.dtype == (x * value).dtype
        assert torch.promote_types(got.dtype, want.dtype) == want.dtype


def test_a_variable_without_a_value_cannot_be_used():
    with pytest.raises(UnboundLocalError):
        UNDEFINED + 1
    with pytest.raises(UnboundLocalError):
        bool(UNDEFINED)
