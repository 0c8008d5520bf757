"""Functions that the compiler approximates with a large error, here to within 3e-7 (arguments up to 9000).

The compiler computes tanh from exponentials, which cancel near zero (an error of 1e-7 however small the
argument), and reduces the arguments of sin and cos by one constant (1e-4 off at 4096, where rotary embeddings
are). Polynomials: S. L. Moshier, Cephes `sinf`, `cosf`; the rational form of tanh is that of Eigen `ptanh`.
Half precision is computed in float32, as in eager; float64 stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from aotpipe.legalize.decompositions.entries import HALF, Table

aten = torch.ops.aten

# pi / 2 in three parts, the first two short enough for exact products with the multiples that arguments have.
_HALF_PI: Final = (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8)
_SIN: Final = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
_COS: Final = (4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)
# Beyond this tanh is 1 in float32; below the other it is its argument.
_TANH_ONE: Final = 7.90531110763549805
_TANH_LINEAR: Final = 0.0004
_TANH_OVER: Final = (
    4.89352455891786e-3,
    6.37261928875436e-4,
    1.48572235717979e-5,
    5.12229709037114e-8,
    -8.60467152213735e-11,
    2.00018790482477e-13,
    -2.76076847742355e-16,
)
_TANH_UNDER: Final = (4.89352518554385e-3, 2.26843463243900e-3, 1.18534705686654e-4, 1.19825839466702e-6)


def _polynomial(x: torch.Tensor, coefficients: tuple[float, ...]) -> torch.Tensor:
    """The sum of `coefficients[i] * x**i`, by Horner's rule."""
    total = x * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        total = total * x + coefficient
    return total


def _single(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], Any]:
    """The function for float32 and half precision; others stay as they are."""

    def decompose(x: torch.Tensor) -> Any:
        if x.dtype in HALF:
            return function(x.float()).to(x.dtype)
        return function(x) if x.dtype == torch.float32 else NotImplemented

    return decompose


def _quadrant(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The multiple of pi / 2 next to `x`, modulo 4, and sine and cosine of the rest."""
    multiple = torch.round(x * 0.6366197723675814)
    rest = x
    for part in _HALF_PI:
        rest = rest - multiple * part
    square = rest * rest
    sine = rest + rest * square * _polynomial(square, _SIN)
    cosine = 1 - 0.5 * square + square * square * _polynomial(square, _COS)
    return multiple - 4 * torch.floor(multiple * 0.25), sine, cosine


def sin(x: torch.Tensor) -> torch.Tensor:
    quadrant, sine, cosine = _quadrant(x)
    value = torch.where((quadrant == 1) | (quadrant == 3), cosine, sine)
    # A zero keeps its sign.
    return torch.where(x == 0, x, torch.where(quadrant >= 2, -value, value))


def cos(x: torch.Tensor) -> torch.Tensor:
    quadrant, sine, cosine = _quadrant(x)
    value = torch.where((quadrant == 1) | (quadrant == 3), sine, cosine)
    return torch.where((quadrant == 1) | (quadrant == 2), -value, value)


def tanh(x: torch.Tensor) -> torch.Tensor:
    held = x.clamp(-_TANH_ONE, _TANH_ONE)
    square = held * held
    value = held * _polynomial(square, _TANH_OVER) / _polynomial(square, _TANH_UNDER)
    return torch.where(x.abs() < _TANH_LINEAR, x, value)


DECOMPOSITIONS: Table = {
    aten.sin.default: _single(sin),
    aten.cos.default: _single(cos),
    aten.tanh.default: _single(tanh),
}
