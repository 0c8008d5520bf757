"""What is compared and what eager is unsure of."""

from __future__ import annotations

import numpy as np

from aotpipe.validate.reference_output import reference_output

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
