"""Dims: arithmetic, ranges, and what they refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.core.dims import AUTO, Auto, Dim
from aotpipe.core.signature import evaluate_dim
from aotpipe.errors import SpecInvalid

names = st.sampled_from(["batch", "seq", "h"])
dims = st.builds(
    lambda name, scale, offset: Dim(name, min=8) * scale + offset,
    names,
    st.integers(1, 40),
    st.integers(-8, 40),
)


def test_arithmetic_reads_as_it_is_written() -> None:
    d = Dim("batch", max=8)
    assert [str(e) for e in (d, 2 * d, d * 2, d + 1, 1 + d, 2 * (d + 1), 16 * d - 3)] == [
        "batch",
        "2*batch",
        "2*batch",
        "batch + 1",
        "batch + 1",
        "2*batch + 2",
        "16*batch - 3",
    ]


def test_equal_means_the_same_symbol() -> None:
    assert Dim("batch", max=8) == Dim("batch", max=8)
    assert (2 * Dim("batch", max=8)).root == Dim("batch", max=8)
    assert Dim("batch", max=8) != Dim("batch", max=9)


@given(dims, st.integers(8, 10_000))
def test_a_value_round_trips_through_its_size(dim: Dim, value: int) -> None:
    assert dim.value(dim.size(value)) == value


@given(dims, st.integers(8, 10_000))
def test_the_text_computes_the_size(dim: Dim, value: int) -> None:
    assert evaluate_dim(str(dim), {dim.name: value}) == dim.size(value)


@given(dims, st.integers(0, 10_000))
def test_a_size_without_a_value_is_no_size_of_it(dim: Dim, size: int) -> None:
    value = dim.value(size)
    assert value is None or dim.size(value) == size


@pytest.mark.parametrize(
    "make",
    [
        lambda: Dim("two words"),
        lambda: Dim("Max"),
        lambda: Dim("for"),
        lambda: Dim("b", min=-1),
        lambda: Dim("b", min=4, max=4),
        lambda: Dim("b", min=0) - 1,
        lambda: Dim("b") * 0,
        lambda: -2 * Dim("b"),
    ],
)
def test_what_fits_no_size_is_refused(make: object) -> None:
    with pytest.raises(SpecInvalid):
        make()  # type: ignore[operator]


def test_a_range_admits_its_ends() -> None:
    d = Dim("b", min=2, max=4)
    assert [d.admits(v) for v in range(6)] == [False, False, True, True, True, False]
    assert Dim("b", min=0).admits(10**9)


def test_auto_takes_bounds() -> None:
    assert AUTO(max=8) == Auto(None, 8)
    assert Auto() == AUTO
