"""One structure of values of which some parts are None: what it is, and where each value has its leaves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.values import structures
from aotpipe.canonicalize.values.optional_values import OptionalValue
from aotpipe.canonicalize.values.structures import aligned, flatten, may_lack, roles, unified

MISSING = object()
VALUES = st.recursive(
    st.none() | st.integers(),
    lambda inner: st.tuples(inner, inner) | st.dictionaries(st.sampled_from("ab"), inner),
)


def one_structure(*values: Any) -> tuple[Any, list[list[Any]]]:
    rows = [flatten(value, of_leaves=True) for value in values]
    spec = unified(rows, of_leaves=True)
    assert spec is not None
    return spec, [aligned(row, spec, MISSING) for row in rows]


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ((None, 1), [[False, MISSING], [True, 1]]),
        ((None, (1, 2)), [[False, MISSING, MISSING], [True, 1, 2]]),
        (((1, None), (3, 4)), [[1, False, MISSING], [3, True, 4]]),
        ((None, (1, None), (3, 4)), [[False, *[MISSING] * 3], [True, 1, False, MISSING], [True, 3, True, 4]]),
        ((None, None), [[None], [None]]),
        (([1], [2]), [[1], [2]]),
    ],
)
def test_a_flag_stands_before_what_may_be_none(values, places) -> None:
    assert one_structure(*values)[1] == places


def test_what_may_be_none_already_has_its_own_flag() -> None:
    flag, inner = torch.tensor(True), torch.tensor(False)
    nested = OptionalValue(flag, OptionalValue(inner, 3))
    spec, (_, found) = one_structure(None, nested)
    assert list(roles(spec)) == ["flag", "held"]
    assert found == [torch.tensor(False), 3]
    assert may_lack(spec)
    assert not may_lack(pytree.tree_structure((1, 2)))


@given(VALUES, VALUES)
def test_both_values_are_found_again(one: Any, other: Any) -> None:
    rows = [flatten(each, of_leaves=True) for each in (one, other)]
    spec = unified(rows, of_leaves=True)
    if spec is None:
        return
    for value, row in zip((one, other), rows, strict=True):
        made = pytree.tree_unflatten(aligned(row, spec, MISSING), spec)
        assert plain(made) == value


def plain(value: Any) -> Any:
    if isinstance(value, OptionalValue):
        return plain(value.payload_of_optional) if value.flag_of_optional else None
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return {key: plain(each) for key, each in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("values", [((1, 2), (1, 2, 3)), ((1,), 1), ({"a": 1}, {"b": 1}), (None, (1,), [1])])
def test_other_structures_have_none_in_common(values) -> None:
    assert unified([flatten(value, of_leaves=True) for value in values], of_leaves=True) is None


def test_of_texts_none_is_one_more() -> None:
    for values in ((None, "a"), ("a", None, "b")):
        rows = [flatten(value, of_leaves=True) for value in values]
        spec = unified(rows, of_leaves=True)
        assert spec is not None
        assert spec.is_leaf()


def test_leaves_that_may_be_none_stay_leaves_where_no_node_is_asked_for() -> None:
    optional = OptionalValue(torch.tensor(True), torch.ones(2))
    leaves, spec = flatten([optional, (None, 1)], of_leaves=False)
    assert leaves == [optional, None, 1]
    assert not may_lack(spec)
    assert structures.tensors_in([optional])[1] is optional.payload_of_optional
