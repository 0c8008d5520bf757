"""What a program must answer, how far it may be from float64, and how its answers compare with the goldens.

An element of an output is unsure, and not compared, where eager disagrees with eager: an integer that float64
or noise changes, a float that overflows in one precision only, or one that noise moves so much more than the
others that a comparison on the way to it must have gone the other way. On the others a program may be off by
a small multiple of how far eager itself is.

For each output the errors of eager in the model's own dtypes against eager in float64 are collected over
all calls, as an envelope: the largest error for each power of two of the reference's magnitude. The law
`atol + rtol * |reference|` is then the tightest that covers `multiple` times that envelope, but never under
a floor of some units in the last place of the output's dtype. Magnitudes are taken relative to the root
mean square of their array, so that calls of any scale inform each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import ml_dtypes
import numpy as np

from aotpipe.core.dtypes import Array, is_inexact
from aotpipe.core.stages import ParityCase
from aotpipe.runtime.goldens import Golden, real_parts

MULTIPLE: Final = 8.0
"""How many times eager's own error a program may be off. Both round at random: of two such errors one is
rarely more than 3 times the other, and a program may sum in another order and use other polynomials."""

NOISE_ULPS: Final = 16.0
"""How far noise moves a number, in units in its last place: some times the error of a program's sums."""

RULE: Final = (
    "|program - float64| <= atol + rtol * |float64|, the tightest such law over all calls that covers "
    f"{MULTIPLE:g} times eager's own error against float64 and 32 units in the last place of float32 "
    "(float64: 64, float16 and bfloat16: 2); integers, bools, NaN and infinities are equal, except where "
    f"eager disagrees with itself under noise of {NOISE_ULPS:g} units in the last place"
)
"""The law that judges a program, in words."""

# The polynomials of IREE for atan and asinh are off by up to 34 units in the last place.
_FLOOR_ULPS: Final = {"float64": 64.0, "float32": 32.0, "float16": 2.0, "bfloat16": 2.0}
_LOWEST, _HIGHEST = -40, 40
_BINS: Final = _HIGHEST - _LOWEST + 1
# Candidates for rtol, in units in the last place: from the floor up to no correct digit.
_RTOL_STEPS: Final = 2.0 ** np.arange(0, 24)

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
    scale: float = 0.0
    errors: Array = field(default_factory=lambda: np.zeros(0))
    finite: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def eager_error(self) -> float:
        """Eager's largest error."""
        return float(self.errors.max(initial=0.0))


def typed(answer: Array, dtype: str) -> Array:
    """One number in the dtype of the signature: Python's have no width of their own."""
    is_other = answer.ndim == 0 and answer.dtype.name != dtype
    return answer.astype(dtype) if is_other and answer.dtype.kind == np.dtype(dtype).kind else answer


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
    model = typed(model, dtype)
    opinions = [*noisy, *([] if wide is None else [wide])]
    if any(other.shape != model.shape for other in opinions):
        return ReferenceOutput(model, np.ones(model.shape, np.bool_))
    if is_inexact(model.dtype):
        return _of_floats(model, wide, noisy, units)
    unsure = np.zeros(model.shape, np.bool_)
    for other in opinions:
        unsure |= other != model
    return ReferenceOutput(model, unsure if unsure.any() else None)


def _of_floats(model: Array, wide: Array | None, noisy: Sequence[Array], units: float) -> ReferenceOutput:
    with np.errstate(over="ignore", invalid="ignore"):
        want = (model if wide is None else wide).astype(model.dtype)
        reference, mine, rounded = _real(model if wide is None else wide), _real(model), _real(want)
        finite = np.isfinite(reference) & np.isfinite(mine) & np.isfinite(rounded)
        # Equal infinities and NaNs are an answer too.
        agreed: Array = np.asarray(finite | _same(rounded, mine))
        errors = np.where(finite, np.abs(mine - reference), 0.0)
        moves = np.zeros(mine.shape)
        for other in map(_real, noisy):
            both = finite & np.isfinite(other)
            agreed &= both | _same(other, mine)
            moves = np.maximum(moves, np.where(both, np.abs(other - mine), 0.0))
        scale = float(np.sqrt(np.mean(np.square(reference[finite])))) if finite.any() else 0.0
        if wide is None or not errors.any():
            # A move by noise of 16 units stands for what rounding does: some units per operation.
            errors = np.maximum(errors, moves * 4 / NOISE_ULPS)
        elif is_few(wide):
            # One unit is what inputs and weights are off at least, and what no luck makes less.
            errors = np.maximum(errors, moves / units)
        if noisy:
            relative = np.maximum(moves, errors) / (np.where(finite, np.abs(reference), 0.0) + (scale or 1.0))
            # What moved so much more than the others was decided otherwise.
            median = float(np.median(relative)) if relative.size else 0.0
            agreed &= ~(relative > max(_FLIP_OF_MEDIAN * median, _FLIP_OF_FLOOR * floor_of(model.dtype)))
    compared = finite & agreed
    parts = 2 if model.dtype.kind == "c" else 1
    unsure: Array = np.logical_not(agreed.reshape(*model.shape, parts).all(axis=-1))
    return ReferenceOutput(
        want, unsure if unsure.any() else None, scale, errors[compared], reference[compared]
    )


def is_few(answer: Array) -> bool:
    """Whether an answer has too few numbers to tell from eager's own error how far rounding may lead."""
    return is_inexact(answer.dtype) and np.unique(_real(answer)).size < _FEW


def _same(one: Array, two: Array) -> Array:
    same: Array = (one == two) | (np.isnan(one) & np.isnan(two))
    return same


def _real(array: Array) -> Array:
    """As flat float64, a complex number as its two parts."""
    wide: Array = real_parts(array).astype(np.float64)
    return wide


@dataclass(slots=True)
class Envelope:
    """The largest error per magnitude of the reference, both in units of the array's root mean square."""

    errors: Array = field(default_factory=lambda: np.zeros(_BINS))
    total: float = 0.0
    count: int = 0

    def add(self, want: Array, error: Array, scale: float) -> None:
        """Add the errors of one array.

        `want` are the reference's finite elements, as float64, and `error` eager's absolute error at each;
        `scale` is the array's root mean square.
        """
        if not want.size or scale == 0:
            return
        magnitude = np.abs(want) / scale
        exponent = np.frexp(magnitude)[1].clip(_LOWEST, _HIGHEST) - _LOWEST
        np.maximum.at(self.errors, exponent, error / scale)
        self.total += float(magnitude.sum())
        self.count += want.size

    def fit(
        self, dtype: np.dtype[Any], multiple: float = MULTIPLE, lowest: str | None = None
    ) -> tuple[float, float]:
        """The tightest (atol per unit of scale, rtol) that covers `multiple` times the envelope.

        `lowest` is as for `floor_of`.
        """
        floor = floor_of(dtype, lowest)
        mean = self.total / self.count if self.count else 1.0
        # An element in the bin of exponent e is at least 2 ** (e - 1).
        lower = 2.0 ** (np.arange(_LOWEST, _HIGHEST + 1) - 1.0)
        best = (np.inf, np.inf)
        for rtol in floor * _RTOL_STEPS:
            atol = max(floor, float((multiple * self.errors - rtol * lower).max()))
            if atol + rtol * mean < best[0] + best[1] * mean:
                best = (atol, float(rtol))
        return best


def floor_of(dtype: np.dtype[Any], lowest: str | None = None) -> float:
    """The smallest tolerance for a dtype, absolute in units of scale and relative alike.

    `lowest` is the name of a dtype with fewer bits that is computed in on the way.
    """
    real = {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)
    return max(
        _FLOOR_ULPS.get(name, 1.0) * float(ml_dtypes.finfo(name).eps)  # type: ignore[no-untyped-call]
        for name in filter(None, (real, lowest))
    )


def judge(golden: Golden, answer: Mapping[str, Array]) -> list[ParityCase]:
    """Compare the answer to a call with its golden: one case per output."""
    wanted = golden.outputs
    return [
        *(golden.judge(name, answer[name]) for name in wanted if name in answer),
        *(failure(golden, name, "the program does not give it") for name in wanted if name not in answer),
        *(failure(golden, name, "eager does not give it") for name in answer if name not in wanted),
    ]


def describe(case: ParityCase) -> str:
    """Describe a failure in one sentence."""
    place = f"`{case.output}` of {case.entry_point} ({case.case})"
    at = f"[{', '.join(map(str, case.worst_index))}]"
    if case.message:
        return f"{place} at {at}: {case.message}" if case.worst_index else f"{place}: {case.message}"
    return (
        f"{place} at {at}: is {case.got:.9g}, eager gives {case.want:.9g}; "
        f"that is {case.ratio:.3g} times the allowed error (worst error {case.max_abs_error:.3g}, "
        f"eager's own {case.eager_abs_error:.3g})"
    )


def failure(golden: Golden, name: str, message: str) -> ParityCase:
    """The case of an output that cannot be compared."""
    return ParityCase(
        entry_point=golden.entry_point,
        case=golden.case,
        output=name,
        max_abs_error=np.inf,
        ratio=np.inf,
        got=np.nan,
        want=np.nan,
        message=message,
    )
