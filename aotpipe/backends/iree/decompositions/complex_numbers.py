"""Complex numbers as pairs of reals: casts, parts, and functions that have formulas over the parts.

The compiler has a complex type with sums and products, and lowers few functions of it.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from aotpipe.passes.decompositions.entries import Table
from aotpipe.passes.decompositions.pointwise import conjugate

aten = torch.ops.aten


def to_copy(tensor: torch.Tensor, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    if dtype is None or dtype.is_complex == tensor.is_complex():
        return NotImplemented
    if tensor.is_complex():
        return tensor.real.to(dtype) if dtype != torch.bool else (tensor.real != 0) | (tensor.imag != 0)
    real = tensor.to(dtype.to_real())
    return torch.complex(real, torch.zeros_like(real))


def absolute(tensor: torch.Tensor) -> Any:
    if tensor.dtype == torch.uint8:
        return tensor.clone()
    return torch.hypot(tensor.real, tensor.imag) if tensor.is_complex() else NotImplemented


def angle(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return torch.atan2(tensor.imag, tensor.real)
    values = tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())
    straight = torch.where(values < 0, math.pi, 0.0).to(values.dtype)
    return torch.where(values != values, values, straight)


def negation(tensor: torch.Tensor) -> Any:
    if tensor.is_complex():
        return torch.complex(-tensor.real, -tensor.imag)
    if tensor.is_floating_point():
        return NotImplemented
    # The importer negates integers through floats, which lose bits.
    return torch.zeros_like(tensor) - tensor


def exponential(tensor: torch.Tensor) -> Any:
    return torch.polar(torch.exp(tensor.real), tensor.imag) if tensor.is_complex() else NotImplemented


DECOMPOSITIONS: Table = {
    aten._to_copy.default: to_copy,
    aten._conj_physical.default: conjugate,
    aten.conj_physical.default: conjugate,
    aten.abs.default: absolute,
    aten.angle.default: angle,
    aten.neg.default: negation,
    aten.exp.default: exponential,
}
