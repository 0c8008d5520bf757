"""The law of tolerance, and each kind of difference as a failed case that says where and what."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.core.dtypes import is_inexact, numpy_dtype
from aotpipe.runtime.goldens import Golden
from aotpipe.validate.parity import (
    MULTIPLE,
    RULE,
    Envelope,
    describe,
    floor_of,
    judge,
    reference_output,
    typed,
)

_F32 = np.dtype(np.float32)


def _golden(**changes: object) -> Golden:
    fields: dict[str, object] = {
        "entry_point": "forward",
        "case": "seed 0",
        "reset": True,
        "inputs": {},
        "outputs": {"y": np.array([1.0, 2.0], np.float32)},
        "allowed": {"y": (0.1, 0.0)},
        "eager_error": {"y": 0.01},
    }
    return Golden(**{**fields, **changes})  # type: ignore[arg-type]


def test_an_answer_within_its_tolerance_passes() -> None:
    (case,) = judge(_golden(), {"y": np.array([1.05, 2.0], np.float32)})
    assert case.passed
    assert 0.4 < case.ratio < 0.6
    assert case.eager_abs_error == 0.01


def test_the_worst_element_is_described_with_both_values() -> None:
    (case,) = judge(_golden(), {"y": np.array([1.0, 2.5], np.float32)})
    assert not case.passed
    text = describe(case)
    assert "`y` of forward (seed 0) at [1]" in text
    assert "is 2.5, eager gives 2;" in text
    assert "5 times the allowed error" in text


def test_a_missing_an_extra_and_a_misshapen_output_fail() -> None:
    good = {"y": np.array([1.0, 2.0], np.float32)}
    for answer, words in (
        ({}, "does not give it"),
        ({**good, "z": good["y"]}, "eager does not give it"),
        ({"y": good["y"][:1]}, "shape is (1,), not (2,)"),
        ({"y": good["y"].astype(np.float64)}, "dtype is float64, not float32"),
        ({"y": good["y"] * np.nan}, "is nan"),
    ):
        [failed] = [case for case in judge(_golden(), answer) if not case.passed]
        assert words in describe(failed)


def test_unsure_elements_are_counted_in_a_note() -> None:
    golden = _golden(
        outputs={"y": np.array([3, 4])}, allowed={}, unsure={"y": np.array([False, True])}, eager_error={}
    )
    (case,) = judge(golden, {"y": np.array([3, 9])})
    assert case.passed
    assert case.note.startswith("1 elements")
    (case,) = judge(golden, {"y": np.array([2, 4])})
    assert not case.passed


def test_the_rule_is_in_words() -> None:
    assert "8 times eager's own error" in RULE


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


_RANDOM = np.random.default_rng(0)


def _floats(*shape: int) -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype(np.float32)


def test_the_reference_is_float64_in_the_models_dtype() -> None:
    wide = _RANDOM.standard_normal((3, 4))
    model = (wide + 1e-5).astype(np.float32)
    judged = reference_output(model, wide, [], "float32")
    assert judged.want.dtype == np.float32
    assert np.array_equal(judged.want, wide.astype(np.float32))
    assert judged.unsure is None
    assert judged.errors.max() > 5e-6


def test_integers_are_eagers_and_unsure_where_float64_or_noise_changes_them() -> None:
    model = np.array([1, 2, 3])
    judged = reference_output(model, np.array([1, 2, 4]), [np.array([1, 9, 3])], "int64")
    assert judged.want.tolist() == [1, 2, 3]
    assert judged.unsure is not None
    assert judged.unsure.tolist() == [False, True, True]


def test_a_size_that_eager_is_unsure_of_makes_all_unsure() -> None:
    judged = reference_output(np.zeros((3, 2)), np.zeros((4, 2)), [], "float64")
    assert judged.unsure is not None
    assert judged.unsure.shape == (3, 2)
    assert judged.unsure.all()


def test_equal_infinities_and_nans_are_compared_and_others_not() -> None:
    model = np.array([np.inf, np.nan, np.inf, 1.0], np.float32)
    wide = np.array([np.inf, np.nan, 5.0, np.nan])
    judged = reference_output(model, wide, [], "float32")
    assert judged.unsure is not None
    assert judged.unsure.tolist() == [False, False, True, True]
    assert judged.errors.size == 0


def test_an_overflow_of_the_models_dtype_is_an_answer() -> None:
    judged = reference_output(np.array([np.inf], np.float32), np.array([1e39]), [], "float32")
    assert judged.want.tolist() == [np.inf]
    assert judged.unsure is None


def test_an_element_that_flips_under_noise_is_unsure_and_does_not_widen_the_rest() -> None:
    model = _floats(1000)
    wide = model.astype(np.float64) + 1e-7
    noisy = model + np.float32(1e-6)
    noisy[7] = 50.0
    judged = reference_output(model, wide, [noisy], "float32")
    assert judged.unsure is not None
    assert np.flatnonzero(judged.unsure).tolist() == [7]
    assert judged.errors.max() < 1e-6


def test_noise_that_moves_all_elements_alike_leaves_none_out() -> None:
    model = _floats(1000)
    assert reference_output(model, model.astype(np.float64), [model * 1.1], "float32").unsure is None


def test_without_float64_noise_is_the_measure() -> None:
    model = _floats(100)
    judged = reference_output(model, None, [model + np.float32(16e-6)], "float32")
    assert np.isclose(judged.errors.max(), 4e-6, rtol=0.1)


def test_a_complex_element_is_unsure_if_either_part_is() -> None:
    model = np.array([1 + 1j, 2 + np.nan * 1j], np.complex64)
    wide = np.array([1 + 1j, 2 + 2j])
    judged = reference_output(model, wide, [], "complex64")
    assert judged.unsure is not None
    assert judged.unsure.tolist() == [False, True]


def test_a_python_number_takes_the_signatures_width() -> None:
    assert reference_output(np.asarray(3), np.asarray(3), [], "int32").want.dtype == np.int32
    assert reference_output(np.asarray(0.5), np.asarray(0.5), [], "float32").want.dtype == np.float32


def test_empty_outputs_are_judged() -> None:
    empty = np.zeros((0, 3), np.float32)
    judged = reference_output(empty, empty.astype(np.float64), [empty], "float32")
    assert judged.unsure is None
    assert judged.scale == 0.0


def test_one_number_has_the_dtype_of_the_signature() -> None:
    assert typed(np.asarray(0.1), "float32") == np.float32(0.1)
    assert typed(np.asarray(0.1), "float32").dtype == _F32
    assert typed(np.asarray(3), "int32").dtype == np.int32
    for other in (np.zeros(1), np.asarray(3)):
        assert typed(other, "float32") is other
