"""How far a program may be from float64, and the comparison of its answers with the goldens.

A program may be off by a small multiple of how far eager itself is.

For each output the errors of eager in the model's own dtypes against eager in float64 are collected over
all calls, as an envelope: the largest error for each power of two of the reference's magnitude. The law
`atol + rtol * |reference|` is then the tightest that covers `multiple` times that envelope, but never under
a floor of some units in the last place of the output's dtype. Magnitudes are taken relative to the root
mean square of their array, so that calls of any scale inform each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from aotpipe.core.dtypes import Array
from aotpipe.core.stages import ParityCase
from aotpipe.runtime.goldens import Golden

MULTIPLE: Final = 8.0
"""How many times eager's own error a program may be off. Both round at random: of two such errors one is
rarely more than 3 times the other, and a program may sum in another order and use other polynomials."""

RULE: Final = (
    "|program - float64| <= atol + rtol * |float64|, the tightest such law over all calls that covers "
    f"{MULTIPLE:g} times eager's own error against float64 and 32 units in the last place of float32 "
    "(float64: 64, float16 and bfloat16: 2); integers, bools, NaN and infinities are equal, except where "
    "eager disagrees with itself under noise of 16 units in the last place"
)
"""The law that judges a program, in words."""

_EPS: Final = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}
# The polynomials of IREE for atan and asinh are off by up to 34 units in the last place.
_FLOOR_ULPS: Final = {"float64": 64.0, "float32": 32.0, "float16": 2.0, "bfloat16": 2.0}
_LOWEST, _HIGHEST = -40, 40
_BINS: Final = _HIGHEST - _LOWEST + 1
# Candidates for rtol, in units in the last place: from the floor up to no correct digit.
_RTOL_STEPS: Final = 2.0 ** np.arange(0, 24)


@dataclass(slots=True)
class Envelope:
    """The largest error per magnitude of the reference, both in units of the array's root mean square."""

    errors: Array = field(default_factory=lambda: np.zeros(_BINS))
    total: float = 0.0
    count: int = 0

    def add(self, want: Array, error: Array, scale: float) -> None:
        """Add the errors of one array.

        Args:
            want: The reference's finite elements, as float64.
            error: Eager's absolute error at each.
            scale: The array's root mean square.
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

        Args:
            dtype: The output's.
            multiple: How many times eager's own error is allowed.
            lowest: The name of a dtype with fewer bits that is computed in on the way.
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

    Args:
        dtype: The output's.
        lowest: The name of a dtype with fewer bits that is computed in on the way.
    """
    real = {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)
    own = _FLOOR_ULPS.get(real, 1.0) * _EPS[real]
    return max(own, _FLOOR_ULPS[lowest] * _EPS[lowest]) if lowest else own


def is_inexact(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype has a tolerance at all; numpy calls ml_dtypes' floats void."""
    return dtype.kind in "fc" or dtype.name.startswith(("bfloat16", "float8"))


def judge(golden: Golden, answer: Mapping[str, Array]) -> list[ParityCase]:
    """Compare the answer to a call with its golden: one case per output."""
    lacking = [name for name in golden.outputs if name not in answer]
    unknown = [name for name in answer if name not in golden.outputs]
    return [
        *(golden.judge(name, answer[name]) for name in golden.outputs if name in answer),
        *(failure(golden, name, "the program does not give it") for name in lacking),
        *(failure(golden, name, "eager does not give it") for name in unknown),
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
        eager_abs_error=0.0,
        ratio=np.inf,
        worst_index=(),
        got=np.nan,
        want=np.nan,
        message=message,
    )
