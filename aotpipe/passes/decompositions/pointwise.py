"""Python's operators on bits, and functions of each element that are made of others.

Polygamma is by Euler and Maclaurin (Abramowitz and Stegun, 6.4.11).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from aotpipe.passes.decompositions.entries import (
    Decomposition,
    Table,
    Value,
    floating,
    promoted,
    widened,
)

aten = torch.ops.aten


def of_tensors(op: Callable[..., torch.Tensor]) -> Decomposition:
    """An op of two tensors, for operands of which one may be a number."""

    def decompose(left: Value, right: Value) -> torch.Tensor:
        return op(*promoted(left, right))

    return decompose


def conjugate(tensor: torch.Tensor) -> torch.Tensor:
    return torch.complex(tensor.real, -tensor.imag) if tensor.is_complex() else tensor.clone()


def polar(size: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    size, turn = torch.broadcast_tensors(size, turn)
    return torch.complex(size * torch.cos(turn), size * torch.sin(turn))


def float_power(base: Value, exponent: Value) -> torch.Tensor:
    one, two = (
        value.to(torch.float64)
        if isinstance(value, torch.Tensor)
        else torch.full((), value, dtype=torch.float64)
        for value in (base, exponent)
    )
    return torch.pow(one, two)


def sum_of_powers(x: torch.Tensor, count: int, power: int) -> torch.Tensor:
    """The sum of `(x + i) ** -power` for i below the count."""
    total = torch.pow(1 / x, power)
    for step in range(1, count):
        total = total + torch.pow(1 / (x + step), power)
    return total


def polygamma(n: int, tensor: torch.Tensor) -> Any:
    """By recurrence to x >= 14, then the asymptotic series."""
    if tensor.dtype == torch.float64:
        return NotImplemented
    if n == 0:
        return torch.digamma(tensor)
    if not tensor.dim():
        return torch.polygamma(n, tensor.reshape(1).expand(2))[0]
    values = floating(tensor)
    x = widened(values)[0]
    if n == 1:
        return _trigamma(x).to(values.dtype)
    low = x < 14
    total = torch.where(low, sum_of_powers(x, 14, n + 1), 0.0)
    y = torch.where(low, x + 14, x)
    # zeta(n + 1, y) by Euler and Maclaurin.
    series = torch.pow(1 / y, n) / n + 0.5 * torch.pow(1 / y, n + 1)
    bernoulli = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66)
    for index, number in enumerate(bernoulli, 1):
        factor = math.prod(range(n + 1, n + 2 * index)) / math.factorial(2 * index)
        series = series + number * factor * torch.pow(1 / y, n + 2 * index)
    sign = 1 if n % 2 else -1
    return (sign * math.factorial(n) * (total + series)).to(values.dtype)


def _trigamma(x: torch.Tensor) -> torch.Tensor:
    reflected = x < 0.5
    y = torch.where(reflected, 1 - x, x)
    total = torch.zeros_like(x)
    for _ in range(6):
        total = total + 1 / (y * y)
        y = y + 1
    z = 1 / (y * y)
    value = total + (1 + 1 / (2 * y) + z * (1 / 6 - z * (1 / 30 - z / 42))) / y
    sine = torch.sin(math.pi * x)
    return torch.where(reflected, math.pi * math.pi / (sine * sine) - value, value)


def spherical_bessel_j0(x: torch.Tensor) -> torch.Tensor:
    """sin(x) / x, by its Taylor series near 0, where both vanish; 0 at the infinities, as in eager."""
    x = floating(x)
    small = x.abs() < 0.5
    square = torch.where(small, x * x, 0.0)
    series = torch.ones_like(x)
    for factor in (1 / 110, 1 / 72, 1 / 42, 1 / 20, 1 / 6):
        # 1 - x^2/6 * (1 - x^2/20 * (...)): the factors are 1 / (2k (2k + 1)).
        series = 1.0 - square * factor * series
    divisor = torch.where(small, 1.0, x)
    return torch.where(small, series, torch.where(x.isinf(), 0.0, torch.sin(x) / divisor))


DECOMPOSITIONS: Table = {
    **{
        op: of_tensors(function)
        for packet, function in (
            (aten.__and__, torch.bitwise_and),
            (aten.__or__, torch.bitwise_or),
            (aten.__xor__, torch.bitwise_xor),
            (aten.__lshift__, torch.bitwise_left_shift),
            (aten.__rshift__, torch.bitwise_right_shift),
        )
        for op in (packet.Scalar, packet.Tensor)
    },
    aten._conj.default: conjugate,
    aten.polar.default: polar,
    aten.float_power.Tensor_Tensor: float_power,
    aten.float_power.Tensor_Scalar: float_power,
    aten.float_power.Scalar: float_power,
    aten.polygamma.default: polygamma,
    aten.special_spherical_bessel_j0.default: spherical_bessel_j0,
}
