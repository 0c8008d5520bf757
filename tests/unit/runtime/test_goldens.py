"""Goldens: the comparison's rules, and the file's round-trip."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aotpipe.core.signature import DTYPES
from aotpipe.runtime import goldens
from aotpipe.runtime.goldens import Golden, compare

_F32 = np.float32


def test_the_worst_element_is_named_with_both_values() -> None:
    want = np.ones((2, 3), _F32)
    got = want.copy()
    got[1, 2] = 1.5
    got[0, 0] = 1.1
    measure = compare(got, want, atol=0.25)
    assert not measure.passed
    assert measure.worst_index == (1, 2)
    assert (measure.got, measure.want) == (1.5, 1.0)
    assert measure.ratio == pytest.approx(2.0)
    assert measure.max_abs_error == pytest.approx(0.5)


def test_the_allowed_error_is_atol_plus_rtol_times_the_reference() -> None:
    want = np.array([0.0, 100.0], _F32)
    assert compare(np.array([0.1, 101.0], _F32), want, atol=0.1001, rtol=0.01).passed
    assert not compare(np.array([0.2, 100.0], _F32), want, atol=0.1, rtol=0.01).passed


@pytest.mark.parametrize(
    ("got", "want"), [(np.nan, 1.0), (1.0, np.nan), (np.inf, -np.inf), (1.0, np.inf), (np.inf, 1.0)]
)
def test_special_values_have_no_tolerance(got: float, want: float) -> None:
    measure = compare(np.array([got], _F32), np.array([want], _F32), atol=1e30, rtol=1e30)
    assert not measure.passed
    assert str(got) in measure.message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0])
def test_a_special_value_answers_itself(value: float) -> None:
    assert compare(np.array([value], _F32), np.array([value], _F32)).passed


def test_dtype_and_shape_must_agree() -> None:
    want = np.zeros((2,), np.uint8)
    assert "dtype is int8, not uint8" in compare(want.astype(np.int8), want).message
    assert "shape is (1, 2), not (2,)" in compare(want.reshape(1, 2), want).message


def test_integers_are_exact_beyond_the_precision_of_float64() -> None:
    want = np.array([2**60], np.int64)
    measure = compare(want + 1, want, atol=1e30)
    assert not measure.passed
    assert measure.message
    assert compare(want, want).passed


def test_bools_are_exact() -> None:
    measure = compare(np.array([True, False]), np.array([True, True]), atol=9.0)
    assert not measure.passed
    assert measure.worst_index == (1,)


def test_unsure_elements_are_not_compared() -> None:
    want = np.array([1, 2], np.int64)
    got = np.array([1, 7], np.int64)
    assert compare(got, want, unsure=np.array([False, True])).passed
    assert not compare(got, want, unsure=np.array([True, False])).passed


def test_an_unsure_shape_is_not_compared() -> None:
    want = np.zeros((3,), np.int64)
    assert compare(want[:2], want, unsure=np.ones((3,), bool)).passed


def test_complex_parts_are_compared_on_their_own() -> None:
    want = np.array([[1 + 1j, 2 + 2j]], np.complex64)
    got = want.copy()
    got[0, 1] = 2 + 3j
    measure = compare(got, want, atol=0.5)
    assert measure.worst_index == (0, 1)
    assert (measure.got, measure.want) == (3.0, 2.0)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_small_floats_are_compared_without_overflow(dtype: Any) -> None:
    want = np.array([60000.0, -60000.0]).astype(dtype)
    assert compare(-want, want, atol=1.0).max_abs_error == pytest.approx(120000.0, rel=0.01)


@pytest.mark.parametrize("place", [0, 1 << 20])
def test_no_bound_allows_what_is_no_number(place: int) -> None:
    want = np.zeros((1 << 20) + 5, _F32)
    got = want.copy()
    got[place] = np.nan
    assert not compare(got, want, atol=np.inf).passed


def test_empty_and_scalar_arrays_are_compared() -> None:
    empty = np.zeros((0, 3), _F32)
    assert compare(empty, empty).passed
    assert compare(np.array(1.0), np.array(2.0), atol=1.0).ratio == 1.0


def test_an_answer_larger_than_a_chunk_is_compared_to_its_end() -> None:
    want = np.zeros(((1 << 20) + 5,), _F32)
    got = want.copy()
    got[-1] = 1.0
    assert compare(got, want, atol=0.5).worst_index == ((1 << 20) + 4,)


@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=0), elements=st.floats(-1e3, 1e3, width=32)))
def test_every_array_equals_itself(array: np.ndarray) -> None:
    measure = compare(array, array.copy())
    assert measure.passed
    assert measure.ratio == 0.0


def _golden(dtype: str) -> Golden:
    array = np.arange(6).reshape(2, 3).astype(np.dtype(dtype))
    return Golden(
        entry_point="forward",
        case=f"seed 0, {dtype}",
        reset=True,
        inputs={"a.b": array, "scalar": np.array(3, np.int64), "none": np.zeros((0, 4), np.float32)},
        outputs={"output": array[::-1]},
        allowed={"output": (0.5, float("inf"))},
        unsure={"output": array == array},
        eager_error={"output": 0.25},
    )


def test_a_file_gives_back_what_was_written() -> None:
    written = [_golden(dtype) for dtype in sorted(DTYPES)]
    again = goldens.loads(goldens.dumps(written))
    for one, two in zip(written, again, strict=True):
        assert (one.entry_point, one.case, one.reset) == (two.entry_point, two.case, two.reset)
        assert one.allowed == two.allowed
        assert one.eager_error == two.eager_error
        for group in ("inputs", "outputs", "unsure"):
            left, right = getattr(one, group), getattr(two, group)
            assert list(left) == list(right)
            for name in left:
                assert left[name].shape == right[name].shape
                assert left[name].dtype == right[name].dtype
                assert np.asarray(left[name] == right[name]).all()


def test_equal_goldens_give_equal_bytes() -> None:
    assert goldens.dumps([_golden("float32")]) == goldens.dumps([_golden("float32")])


@pytest.mark.parametrize("data", [b"", b"\x02\0\0\0\0\0\0\0{}", b"garbage garbage"])
def test_another_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a file of goldens"):
        goldens.loads(data)


def test_a_failure_says_how_many_elements_are_off_and_where():
    want = np.zeros(640, np.float32)
    got = want.copy()
    got[630:640] = 3.0
    case = compare(got, want, atol=1.0)
    assert (case.failing, case.elements) == (10, 640)
    assert [place for place, ratio in enumerate(case.profile) if ratio > 1] == [63]
    assert compare(want, want).profile == ()
    one = compare(np.array(3.0), np.array(1.0), atol=1.0)
    assert (one.failing, one.elements, one.profile) == (1, 1, (2.0,))
