"""Powers of integers, which the compiler lacks, and of floats by C's rules for signs, zeros, infinities."""

from __future__ import annotations

import math
from typing import Any

import torch

from aotpipe.backends.iree.decompositions.pointwise import is_nan
from aotpipe.passes.decompositions.entries import Number, Table, Value, promoted, widened

aten = torch.ops.aten


def pow_scalar(base: torch.Tensor, exponent: Number) -> Any:
    dtype = torch.result_type(base, exponent)
    if base.is_complex():
        return NotImplemented
    values = base.to(dtype)
    if not dtype.is_floating_point or (float(exponent).is_integer() and abs(exponent) <= 16):
        return _integer_power(values, int(exponent))
    if abs(exponent) == 0.5:
        # As eager has it, also for -inf, of which C's power would be inf.
        root = widened(values)[0]
        return (root.sqrt() if exponent > 0 else root.rsqrt()).to(dtype)
    return pow_tensor(base, torch.full((), exponent, dtype=dtype, device=base.device))


def _integer_power(base: torch.Tensor, exponent: int) -> torch.Tensor:
    """By squaring."""
    dtype = base.dtype
    base = base.to(torch.int32) if dtype in (torch.uint8, torch.bool) else widened(base)[0]
    left, square, product = abs(exponent), base, torch.ones_like(base)
    first = True
    while left:
        if left & 1:
            product, first = (square if first else product * square), False
        left >>= 1
        square = square * square if left else square
    return (product if exponent >= 0 else 1 / product).to(dtype)


def pow_tensor(base: Value, exponent: torch.Tensor) -> Any:
    one, two = promoted(base, exponent)
    dtype = one.dtype
    if dtype.is_complex:
        return NotImplemented
    if not dtype.is_floating_point:
        return _integer_powers(one, two).to(dtype)
    return _power(*widened(one, two)).to(dtype)


def _integer_powers(base: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    base, exponent = base.to(torch.int64), exponent.to(torch.int64)
    square, left, product = base, exponent, torch.ones_like(base)
    # Every bit of the exponent counts, as large powers wrap around like eager's.
    for _ in range(63):
        product = torch.where(left & 1 != 0, product * square, product)
        square, left = square * square, left >> 1
    # Of negative powers only those of 1 and -1 are whole.
    sign = torch.where(base == -1, 1 - 2 * (exponent & 1), torch.where(base == 1, 1, 0))
    return torch.where(exponent < 0, sign, product)


def _power(base: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """Of the absolute base through logarithms, then C's rules for signs, zeros and infinities."""
    size = base.abs()
    # Squared, as an exponential is inexact next to its largest values.
    root = torch.exp2(0.5 * (exponent * torch.log2(size)))
    power = root * root
    power = torch.where((size == 1) & ~is_nan(exponent), 1.0, power)
    whole = torch.floor(exponent) == exponent
    odd = whole & (torch.floor(exponent * 0.5) * 2 != exponent)
    power = torch.where(odd & torch.signbit(base), -power, power)
    power = torch.where((base < 0) & ~whole & (base != -math.inf) & ~is_nan(exponent), math.nan, power)
    return torch.where((exponent == 0) | (base == 1), 1.0, power)


DECOMPOSITIONS: Table = {
    aten.pow.Tensor_Scalar: pow_scalar,
    aten.pow.Tensor_Tensor: pow_tensor,
    aten.pow.Scalar: pow_tensor,
}
