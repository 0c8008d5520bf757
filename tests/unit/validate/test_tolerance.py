"""The law of tolerance: covers eager's error, never tighter than the dtype."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.core.dtypes import numpy_dtype
from aotpipe.validate.tolerance import MULTIPLE, Envelope, floor_of, is_inexact

_F32 = np.dtype(np.float32)


def _law(want: np.ndarray, error: np.ndarray, multiple: float = MULTIPLE) -> tuple[float, float]:
    envelope = Envelope()
    envelope.add(want, error, 1.0)
    return envelope.fit(_F32, multiple)


def test_without_an_error_of_eagers_the_floor_remains() -> None:
    atol, rtol = _law(np.ones(10), np.zeros(10))
    assert atol == rtol == floor_of(_F32) == 32 * 2**-23


def test_what_is_computed_in_fewer_bits_on_the_way_sets_the_floor() -> None:
    envelope = Envelope()
    envelope.add(np.ones(10), np.zeros(10), 1.0)
    assert envelope.fit(_F32, lowest="bfloat16") == (2 * 2**-7, 2 * 2**-7)
    assert floor_of(np.dtype(np.float64), "float16") == 2 * 2**-10


def test_a_relative_error_gives_a_relative_law() -> None:
    want = np.logspace(-6, 2, 1000)
    atol, rtol = _law(want, 1e-5 * want)
    assert 8e-5 <= rtol < 4e-4
    assert atol == floor_of(_F32)


def test_an_absolute_error_gives_an_absolute_law() -> None:
    want = np.logspace(-6, 0, 1000)
    atol, rtol = _law(want, np.full(1000, 1e-4))
    assert atol == pytest.approx(8e-4, rel=0.01)
    assert rtol < 1e-4


@given(st.integers(0, 2**32 - 1), st.floats(1.0, 64.0))
def test_the_law_covers_the_multiple_of_every_error(seed: int, multiple: float) -> None:
    random = np.random.default_rng(seed)
    want = random.standard_normal(200) * 10.0 ** random.integers(-8, 2, 200)
    error = np.abs(random.standard_normal(200)) * 10.0 ** random.integers(-9, -2)
    atol, rtol = _law(want, error, multiple)
    assert (multiple * error <= (atol + rtol * np.abs(want)) * (1 + 1e-12)).all()


def test_calls_of_different_scale_inform_each_other() -> None:
    envelope = Envelope()
    envelope.add(np.array([1000.0]), np.array([1.0]), 1000.0)
    envelope.add(np.array([0.001]), np.array([0.0]), 0.001)
    atol, rtol = envelope.fit(_F32, 1.0)
    assert atol + rtol == pytest.approx(1e-3, rel=0.5)


@pytest.mark.parametrize(
    ("dtype", "inexact"),
    [
        ("float32", True),
        ("bfloat16", True),
        ("complex64", True),
        ("float8_e5m2", True),
        ("int8", False),
        ("bool", False),
    ],
)
def test_which_dtypes_have_a_tolerance(dtype: str, inexact: bool) -> None:
    assert is_inexact(numpy_dtype(dtype)) == inexact
    if inexact:
        assert 0 < floor_of(numpy_dtype(dtype)) < 0.5
