"""Functions of complex numbers by their parts: the compiler has none of them.

An entry of `OF_COMPLEX` leaves real operands to the op's other entry. Values at the infinities are those of
the formulas, which C's library replaces by limits of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from aotpipe.passes.decompositions.entries import Decomposition, Value, promoted

aten = torch.ops.aten

_TANH_ONE = {torch.complex64: 11.0, torch.complex128: 20.0}
"""From there on the real part of tanh is 1."""
_POWERS = 16
"""Up to which exponent a power is a product."""


def log(z: Tensor) -> Tensor:
    real, imag = z.real, z.imag
    high, low = torch.maximum(real.abs(), imag.abs()), torch.minimum(real.abs(), imag.abs())
    # Near a size of 1 its logarithm is that of something close to 1.
    near = 0.5 * torch.log1p((high - 1) * (high + 1) + low * low)
    size = torch.where((high > 0.5) & (high < 2), near, torch.log(torch.hypot(real, imag)))
    return torch.complex(size, torch.atan2(imag, real))


def log1p(z: Tensor) -> Tensor:
    real, imag = z.real, z.imag
    near = 0.5 * torch.log1p(real * (real + 2) + imag * imag)
    far = log(torch.complex(real + 1, imag))
    is_near = torch.hypot(real, imag) < 0.5
    return torch.complex(torch.where(is_near, near, far.real), torch.atan2(imag, real + 1))


def expm1(z: Tensor) -> Tensor:
    half = torch.sin(0.5 * z.imag)
    real = torch.expm1(z.real) * torch.cos(z.imag) - 2 * half * half
    return torch.complex(real, torch.exp(z.real) * torch.sin(z.imag))


def sinh(z: Tensor) -> Tensor:
    return torch.complex(torch.sinh(z.real) * torch.cos(z.imag), torch.cosh(z.real) * torch.sin(z.imag))


def cosh(z: Tensor) -> Tensor:
    return torch.complex(torch.cosh(z.real) * torch.cos(z.imag), torch.sinh(z.real) * torch.sin(z.imag))


def tanh(z: Tensor) -> Tensor:
    """W. Kahan, "Branch cuts for complex elementary functions" (1987)."""
    x, tangent, most = z.real, torch.tan(z.imag), _TANH_ONE[z.dtype]
    beta = 1 + tangent * tangent
    held = x.clamp(-most, most)
    s = torch.sinh(held)
    d = 1 + beta * s * s
    is_far = x.abs() > most
    one = torch.where(x < 0, -1.0, 1.0)
    far = 4 * torch.sin(z.imag) * torch.cos(z.imag) * torch.exp(-2 * x.abs())
    real = torch.where(is_far, one, beta * torch.sqrt(1 + s * s) * s / d)
    return torch.complex(real, torch.where(is_far, far, tangent / d))


def _turned(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """`-i f(i z)`: the sine and the tangent by the hyperbolic ones."""

    def turned(z: Tensor) -> Tensor:
        found = function(torch.complex(-z.imag, z.real))
        return torch.complex(found.imag, -found.real)

    return turned


def cos(z: Tensor) -> Tensor:
    return cosh(torch.complex(-z.imag, z.real))


def sqrt(z: Tensor) -> Tensor:
    real, imag = z.real, z.imag
    root = torch.sqrt(0.5 * (real.abs() + torch.hypot(real, imag)))
    other = imag.abs() / (2 * torch.where(root == 0, 1.0, root))
    is_right = ~torch.signbit(real)
    size = torch.where(is_right, other, root)
    return torch.complex(torch.where(is_right, root, other), torch.where(torch.signbit(imag), -size, size))


def reciprocal(z: Tensor) -> Tensor:
    scale = torch.maximum(z.real.abs(), z.imag.abs())
    real, imag = z.real / scale, z.imag / scale
    square = real * real + imag * imag
    return torch.complex(real / square / scale, -imag / square / scale)


def power(base: Value, exponent: Value) -> Tensor:
    if isinstance(base, Tensor) and isinstance(exponent, int) and abs(exponent) <= _POWERS:
        product = torch.ones_like(base)
        for _ in range(abs(exponent)):
            product = product * base
        return reciprocal(product) if exponent < 0 else product
    z, w = promoted(base, exponent)
    # The logarithm of 0 is none.
    is_zero = ~_truth(z)
    found = torch.exp(w * log(torch.where(is_zero, torch.ones_like(z), z)))
    at_zero = torch.where(_truth(w), torch.where(w.real > 0, 0.0, math.nan), 1.0)
    real, imag = (
        torch.where(is_zero, at_zero, found.real),
        torch.where(is_zero, at_zero - at_zero, found.imag),
    )
    return torch.complex(real, imag)


def _truth(x: Tensor) -> Tensor:
    return (x.real != 0) | (x.imag != 0) if x.is_complex() else x != 0


def equal(left: Value, right: Value) -> Tensor:
    one, two = promoted(left, right)
    return (one.real == two.real) & (one.imag == two.imag)


def scaled_sum(left: Value, right: Value, *, alpha: complex = 1) -> Any:
    return NotImplemented if alpha == 1 else left + right * alpha


def scaled_difference(left: Value, right: Value, *, alpha: complex = 1) -> Any:
    return NotImplemented if alpha == 1 else left - right * alpha


def pad(z: Tensor, amounts: Sequence[int], value: complex = 0) -> Any:
    whole = complex(value)
    parts = zip((z.real, z.imag), (whole.real, whole.imag), strict=True)
    return torch.complex(*(aten.constant_pad_nd.default(part, amounts, number) for part, number in parts))


def scattered(op: Any, z: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return torch.complex(op(z.real, dim, index, source.real), op(z.imag, dim, index, source.imag))


def index_put(z: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:
    if values.dtype != z.dtype:
        return NotImplemented
    parts = ((z.real, values.real), (z.imag, values.imag))
    return torch.complex(*(aten.index_put.default(one, indices, two, accumulate) for one, two in parts))


def _times(function: Callable[[Tensor], Tensor], factor: float) -> Callable[[Tensor], Tensor]:
    def times(z: Tensor) -> Tensor:
        found = function(z)
        return torch.complex(found.real * factor, found.imag * factor)

    return times


def _widely(function: Callable[..., Any]) -> Callable[..., Any]:
    """A lone scalar's value as one of two: the compiler takes minutes over a long function of one."""

    def decompose(*operands: Any) -> Any:
        if any(isinstance(value, Tensor) and value.dim() for value in operands):
            return function(*operands)
        two = (value.reshape(1).expand(2) if isinstance(value, Tensor) else value for value in operands)
        return function(*two)[0]

    return decompose


def _of_complex(function: Callable[..., Any]) -> Decomposition:
    """A function where an operand is complex."""

    def decompose(*operands: Any, **options: Any) -> Any:
        tensors = (value.is_complex() for value in operands if isinstance(value, Tensor))
        has_complex = any(tensors) or any(isinstance(value, complex) for value in operands)
        return function(*operands, **options) if has_complex else NotImplemented

    return decompose


_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    aten.log.default: log,
    aten.log2.default: _times(log, 1 / math.log(2)),
    aten.log10.default: _times(log, 1 / math.log(10)),
    aten.log1p.default: log1p,
    aten.exp2.default: lambda z: torch.exp(z * math.log(2)),
    aten.expm1.default: expm1,
    aten.sin.default: _turned(sinh),
    aten.cos.default: cos,
    aten.tan.default: _turned(tanh),
    aten.sinh.default: sinh,
    aten.cosh.default: cosh,
    aten.tanh.default: tanh,
    aten.sqrt.default: sqrt,
    aten.rsqrt.default: lambda z: reciprocal(sqrt(z)),
    aten.reciprocal.default: reciprocal,
    aten.sigmoid.default: lambda z: reciprocal(1 + torch.exp(-z)),
    aten.pow.Tensor_Scalar: power,
    aten.pow.Tensor_Tensor: power,
    aten.pow.Scalar: power,
    aten.eq.Tensor: equal,
    aten.eq.Scalar: equal,
    aten.ne.Tensor: lambda left, right: ~equal(left, right),
    aten.ne.Scalar: lambda left, right: ~equal(left, right),
    aten.isnan.default: lambda z: z.real.isnan() | z.imag.isnan(),
    aten.isinf.default: lambda z: z.real.isinf() | z.imag.isinf(),
    aten.logical_not.default: lambda z: ~_truth(z),
    aten.logical_and.default: lambda left, right: _truth(left) & _truth(right),
    aten.logical_or.default: lambda left, right: _truth(left) | _truth(right),
    aten.logical_xor.default: lambda left, right: _truth(left) ^ _truth(right),
}
_OTHERS: Mapping[Any, Callable[..., Any]] = {
    aten.add.Tensor: scaled_sum,
    aten.sub.Tensor: scaled_difference,
    aten.constant_pad_nd.default: pad,
    aten.index_put.default: index_put,
    **{op: partial(scattered, op) for op in (aten.scatter.src, aten.scatter_add.default)},
}
OF_COMPLEX: Mapping[Any, Decomposition] = {
    **{op: _of_complex(_widely(each)) for op, each in _FUNCTIONS.items()},
    **{op: _of_complex(each) for op, each in _OTHERS.items()},
}
"""Entries that stand in front of an op's other entry."""
