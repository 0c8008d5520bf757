"""Finds what a program must answer for one output of one call, and which elements eager is unsure of.

An element is unsure, and not compared, where eager disagrees with eager: an integer that float64 or noise
changes, a float that overflows in one precision only, or one that noise moves so much more than the others
that a comparison on the way to it must have gone the other way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from aotpipe.core.dtypes import Array
from aotpipe.validate.eager.eager import NOISE_ULPS
from aotpipe.validate.parity import floor_of, is_inexact

# An element flipped where it moves by so many times the median's move under noise, and by so many times the
# floor of tolerance, relative to its magnitude and the array's.
_FLIP_OF_MEDIAN: Final = 64.0
_FLIP_OF_FLOOR: Final = 1000.0
# Of so few numbers eager's own error may be small by luck, where what they are sums of cancels.
_FEW: Final = 16


@dataclass(slots=True)
class ReferenceOutput:
    """What a program must answer for one output of one call.

    Attributes:
        want: What a program must answer, in the model's dtype.
        unsure: The elements that are not compared; None where all are.
        scale: The root mean square of the reference.
        errors, finite: Eager's absolute error, and the reference, at each compared finite element.
    """

    want: Array
    unsure: Array | None
    scale: float
    errors: Array
    finite: Array


def reference_output(
    model: Array, wide: Array | None, noisy: Sequence[Array], dtype: str, units: float = NOISE_ULPS
) -> ReferenceOutput:
    """Find an output's reference, the unsure elements, and eager's errors on the others.

    Args:
        model: Eager's answer, in the model's own dtypes.
        wide: Its answer in float64, None where it has none.
        noisy: Its answers under noise, none where there is no doubt.
        dtype: The signature's dtype.
        units: How many units in the last place that is computed in noise moves a number by.
    """
    if model.ndim == 0 and model.dtype.name != dtype and model.dtype.kind == np.dtype(dtype).kind:
        # A Python number has no width of its own.
        model = model.astype(dtype)
    opinions = [*noisy, *([] if wide is None else [wide])]
    nothing = np.zeros(0)
    if any(other.shape != model.shape for other in opinions):
        return ReferenceOutput(model, np.ones(model.shape, np.bool_), 0.0, nothing, nothing)
    if not is_inexact(model.dtype):
        return ReferenceOutput(model, _differing(model, opinions), 0.0, nothing, nothing)
    return _of_floats(model, wide, noisy, units)


def _differing(model: Array, others: Sequence[Array]) -> Array | None:
    unsure = np.zeros(model.shape, np.bool_)
    for other in others:
        unsure |= other != model
    return unsure if unsure.any() else None


def _of_floats(model: Array, wide: Array | None, noisy: Sequence[Array], units: float) -> ReferenceOutput:
    with np.errstate(over="ignore", invalid="ignore"):
        want = (model if wide is None else wide).astype(model.dtype)
        reference, mine, rounded = _real(model if wide is None else wide), _real(model), _real(want)
        others = [_real(other) for other in noisy]
        finite = np.isfinite(reference) & np.isfinite(mine) & np.isfinite(rounded)
        # Equal infinities and NaNs are an answer too.
        agreed: Array = np.asarray(finite | _same(rounded, mine))
        for other in others:
            agreed &= (np.isfinite(other) & finite) | _same(other, mine)
        errors = np.where(finite, np.abs(mine - reference), 0.0)
        moves = np.zeros(mine.shape)
        for other in others:
            moves = np.maximum(moves, np.where(finite & np.isfinite(other), np.abs(other - mine), 0.0))
        scale = float(np.sqrt(np.mean(np.square(reference[finite])))) if finite.any() else 0.0
        if wide is None or not errors.any():
            # A move by noise of 16 units stands for what rounding does: some units per operation.
            errors = np.maximum(errors, moves * 4 / NOISE_ULPS)
        elif is_few(wide):
            # One unit is what inputs and weights are off at least, and what no luck makes less.
            errors = np.maximum(errors, moves / units)
        if others:
            relative = np.maximum(moves, errors) / (np.where(finite, np.abs(reference), 0.0) + (scale or 1.0))
            agreed &= ~_flipped(relative, floor_of(model.dtype))
    compared = finite & agreed
    parts = 2 if model.dtype.kind == "c" else 1
    unsure: Array = np.logical_not(agreed.reshape(*model.shape, parts).all(axis=-1))
    return ReferenceOutput(
        want, unsure if unsure.any() else None, scale, errors[compared], reference[compared]
    )


def is_few(answer: Array) -> bool:
    """Whether an answer has too few numbers to tell from eager's own error how far rounding may lead."""
    return is_inexact(answer.dtype) and np.unique(_real(answer)).size < _FEW


def _flipped(moves: Array, floor: float) -> Array:
    """Which elements moved so much more than the others that something was decided otherwise."""
    limit = max(_FLIP_OF_MEDIAN * float(np.median(moves)) if moves.size else 0.0, _FLIP_OF_FLOOR * floor)
    flipped: Array = moves > limit
    return flipped


def _same(one: Array, two: Array) -> Array:
    same: Array = (one == two) | (np.isnan(one) & np.isnan(two))
    return same


def _real(array: Array) -> Array:
    """As flat float64, a complex number as its two parts."""
    flat = np.ascontiguousarray(array).reshape(-1)
    flat = flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat
    wide: Array = flat.astype(np.float64)
    return wide
