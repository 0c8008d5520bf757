"""Functions that the compiler approximates with a large error, here to within 5e-7.

The compiler computes tanh, sinh, asinh, atanh and elu from exponentials and logarithms, which cancel near
zero (an error of 1e-7 however small the argument) and for negative arguments (asinh: 1e-2), and has a short
polynomial for atan (4e-6). Polynomials: S. L. Moshier, Cephes `atanf`; the rational form of tanh is that of
Eigen `ptanh`. Half precision is computed in float32, as in eager; float64 stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch

from aotpipe.passes.decompositions.entries import HALF, Table, floating, wide

aten = torch.ops.aten

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
_ATAN: Final = (-3.33329491539e-1, 1.99777106478e-1, -1.38776856032e-1, 8.05374449538e-2)
# The tangents of 3 / 8 and 1 / 8 of pi.
_TAN_FAR: Final = 2.414213562373095
_TAN_MIDDLE: Final = 0.414213562373095
# ln 2 in two parts, the first of 10 bits.
_LN_2: Final = (0.693359375, -2.12194440054690583e-4)
# Beyond this exp2 is 0 or infinite in float32.
_EXP2_RANGE: Final = 150.0
_TANH_UNDER: Final = (4.89352518554385e-3, 2.26843463243900e-3, 1.18534705686654e-4, 1.19825839466702e-6)


def polynomial(x: torch.Tensor, coefficients: tuple[float, ...]) -> torch.Tensor:
    """The sum of `coefficients[i] * x**i`, by Horner's rule."""
    total = x * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        total = total * x + coefficient
    return total


def single(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], Any]:
    """The function for float32, half precision and whole numbers; others stay as they are."""

    def decompose(x: torch.Tensor) -> Any:
        x = floating(x)
        if x.dtype in HALF:
            return function(x.float()).to(x.dtype)
        return function(x) if x.dtype == torch.float32 else NotImplemented

    return decompose


def tanh(x: torch.Tensor) -> torch.Tensor:
    held = x.clamp(-_TANH_ONE, _TANH_ONE)
    square = held * held
    value = held * polynomial(square, _TANH_OVER) / polynomial(square, _TANH_UNDER)
    value = torch.where(x.abs() < _TANH_LINEAR, x, value)
    return torch.where(x >= _TANH_ONE, 1.0, torch.where(x <= -_TANH_ONE, -1.0, value))


def atan(x: torch.Tensor) -> torch.Tensor:
    return _signed(_positive_atan(x.abs()), x)


def _positive_atan(x: torch.Tensor) -> torch.Tensor:
    far, middle = x > _TAN_FAR, x > _TAN_MIDDLE
    rest = torch.where(far, -1 / x, torch.where(middle, (x - 1) / (x + 1), x))
    square = rest * rest
    value = rest + rest * square * polynomial(square, _ATAN)
    return value + torch.where(far, math.pi / 2, torch.where(middle, math.pi / 4, 0.0))


def atan2(y: torch.Tensor, x: torch.Tensor) -> Any:
    dtype = torch.result_type(y, x)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    if wide(dtype) != torch.float32:
        return NotImplemented
    y, x = torch.broadcast_tensors(y.float(), x.float())
    high, low = torch.maximum(y.abs(), x.abs()), torch.minimum(y.abs(), x.abs())
    # Two zeros and two infinities have a quotient here, too.
    quotient = torch.where(low == high, torch.where(high == 0, 0.0, 1.0), low / high)
    angle = _positive_atan(quotient)
    angle = torch.where(y.abs() > x.abs(), math.pi / 2 - angle, angle)
    angle = torch.where(_negative(x), math.pi - angle, angle)
    angle = torch.where(_negative(y), -angle, angle)
    return torch.where(torch.isnan(x) | torch.isnan(y), torch.nan, angle).to(dtype)


def sinh(x: torch.Tensor) -> torch.Tensor:
    size = x.abs()
    less = torch.expm1(size)
    half = torch.exp(0.5 * size)
    # From there on the smaller exponential is lost, and the larger one may overflow before its half does.
    return _signed(torch.where(size < 20, 0.5 * (less + less / (less + 1)), 0.5 * half * half), x)


def asinh(x: torch.Tensor) -> torch.Tensor:
    size = x.abs()
    square = size * size
    near = torch.log1p(size + square / (1 + torch.sqrt(square + 1)))
    # From there on the square is all there is under the root, and would overflow.
    return _signed(torch.where(size < 1e6, near, torch.log(size) + math.log(2)), x)


def atanh(x: torch.Tensor) -> torch.Tensor:
    size = x.abs()
    return _signed(0.5 * torch.log1p(2 * size / (1 - size)), x)


def exp2(x: torch.Tensor) -> torch.Tensor:
    whole = torch.round(x)
    rest = (x - whole) * math.log(2)
    # The product of a whole number and the first part of ln 2 is exact. An infinite one has no rest.
    exact = torch.exp(whole * _LN_2[0]) * torch.exp(whole * _LN_2[1] + rest)
    return torch.where(x.abs() < _EXP2_RANGE, exact, torch.where(x < 0, 0.0, x * torch.inf))


def log10(x: torch.Tensor) -> torch.Tensor:
    return torch.log(x) * (1 / math.log(10))


def elu(x: torch.Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    below = torch.expm1(x.to(wide(x.dtype)) * input_scale) * (alpha * scale)
    return torch.where(x > 0, x * scale, below.to(x.dtype))


def _signed(size: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """An odd function's value from that of the absolute argument; a zero keeps its sign."""
    return torch.where(like == 0, like, torch.where(like < 0, -size, size))


def _negative(x: torch.Tensor) -> torch.Tensor:
    """Whether the sign is set, which comparisons do not tell for a zero."""
    return (x < 0) | ((x == 0) & (1 / x < 0))


def gelu(x: torch.Tensor, *, approximate: str = "none") -> Any:
    """The compiler's tanh is in its form of the op, too."""
    if approximate != "tanh" or x.dtype == torch.float64:
        return NotImplemented
    single = x.float()
    inner = (single + 0.044715 * single * single * single) * math.sqrt(2 / math.pi)
    return (0.5 * single * (1 + torch.tanh(inner))).to(x.dtype)


DECOMPOSITIONS: Table = {
    aten.gelu.default: gelu,
    aten.tanh.default: single(tanh),
    aten.atan.default: single(atan),
    aten.atan2.default: atan2,
    aten.sinh.default: single(sinh),
    aten.asinh.default: single(asinh),
    aten.atanh.default: single(atanh),
    aten.exp2.default: single(exp2),
    aten.log10.default: single(log10),
    aten.elu.default: elu,
}
