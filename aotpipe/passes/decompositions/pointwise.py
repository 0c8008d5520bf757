"""Python's operators on bits, functions of each element that are made of others, and quantization.

Polygamma is by Euler and Maclaurin (Abramowitz and Stegun, 6.4.11).

Quantization is to integers of few bits and back, or to what such an integer could hold, in floats. Neither
compiler has this fake kind. As eager's kernels do it, the scale is a float32 whose inverse is taken first,
the quotient is rounded to even before the zero point is added, and the mask tells what was not clamped. What
has one scale is float32 in the end, of float64 too. PT2E writes the real kind as ops of a library of torch's
own, which IREE's importer knows (`LIBRARIES`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from aotpipe.passes.decompositions.entries import Table, Value, either, floating, promoted, wide, widened

aten = torch.ops.aten


def of_tensors(op: Callable[..., Tensor]) -> Callable[[Value, Value], Tensor]:
    """An op of two tensors, for operands of which one may be a number."""

    def decompose(left: Value, right: Value) -> Tensor:
        return op(*promoted(left, right))

    return decompose


def reversed_sub(tensor: Tensor, number: Any, alpha: Any = 1) -> Any:
    """`number - alpha * tensor`: torch's own entry leaves a size that varies in the place of a tensor."""
    if not isinstance(number, torch.SymInt | torch.SymFloat):
        return NotImplemented
    dtype = torch.result_type(tensor, float(1) if isinstance(number, torch.SymFloat) else 1)
    return aten.full.default([], number, dtype=dtype) - alpha * tensor.to(dtype)


def conjugate(tensor: Tensor) -> Tensor:
    return torch.complex(tensor.real, -tensor.imag) if tensor.is_complex() else tensor.clone()


def polar(size: Tensor, turn: Tensor) -> Tensor:
    size, turn = torch.broadcast_tensors(size, turn)
    return torch.complex(size * torch.cos(turn), size * torch.sin(turn))


def sum_of_powers(x: Tensor, count: int, power: int) -> Tensor:
    """The sum of `(x + i) ** -power` for i below the count."""
    total = torch.pow(1 / x, power)
    for step in range(1, count):
        total = total + torch.pow(1 / (x + step), power)
    return total


def polygamma(n: int, tensor: Tensor) -> Any:
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


def _trigamma(x: Tensor) -> Tensor:
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


def spherical_bessel_j0(x: Tensor) -> Tensor:
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


def frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    """The mantissa, from 0.5 to below 1, and the exponent, read from a float's bits (IEEE 754, 3.4)."""
    value = widened(x)[0]
    whole, bits, bias = (torch.int64, 52, 1022) if value.dtype == torch.float64 else (torch.int32, 23, 126)
    # A subnormal number has no exponent of its own.
    small = value.abs() < torch.finfo(value.dtype).smallest_normal
    word = torch.where(small, value * 2.0**bits, value).view(whole)
    field = (2 * bias + 3) << bits
    exponent = ((word & field) >> bits) - bias
    mantissa = ((word & ~field) | (bias << bits)).view(value.dtype)
    plain = value.isfinite() & (value != 0)
    exponent = torch.where(small, exponent - bits, exponent)
    return (torch.where(plain, mantissa, value).to(x.dtype), torch.where(plain, exponent, 0).to(torch.int32))


def ldexp(x: Tensor, exponent: Tensor) -> Any:
    """`x * 2**exponent` by four powers, as one may be beyond the largest number where the product is not."""
    if exponent.is_floating_point() or x.is_complex():
        return decomposition_table[aten.ldexp.Tensor](x, exponent)
    given = floating(x)
    value = widened(given)[0]
    whole, bits, bias = (torch.int64, 52, 1023) if value.dtype == torch.float64 else (torch.int32, 23, 127)
    # Eager's exponents are C's integers, and beyond the limit nothing is left, or an infinity.
    limit = 3 * bias
    power = exponent.to(torch.int32).clamp(-limit, limit).to(whole)
    quarter = power >> 2
    for part in (quarter, quarter, quarter, power - 3 * quarter):
        value = value * ((part + bias) << bits).view(value.dtype)
    return value.to(given.dtype)


Masked = tuple[Tensor, Tensor]
_FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)


def per_tensor(x: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int) -> Masked:
    step = torch.full((), scale, dtype=torch.float32, device=x.device)
    zero = torch.full((), zero_point, dtype=torch.int64, device=x.device)
    return _quantized(x, step, zero, quant_min, quant_max, torch.float32)


def per_tensor_of_tensors(
    x: Tensor, scale: Tensor, zero_point: Tensor, fake_quant_enabled: Tensor, quant_min: int, quant_max: int
) -> Masked:
    step, zero = scale.reshape(()), zero_point.reshape(())
    found, mask = _quantized(x, step, zero, quant_min, quant_max, torch.float32)
    enabled = fake_quant_enabled.reshape(()) != 0
    return torch.where(enabled, found, x), mask | ~enabled


def per_channel(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Masked:
    shape = _along(axis, x)
    step, zero = scale.reshape(shape), zero_point.reshape(shape)
    return _quantized(x, step, zero, quant_min, quant_max, wide(x.dtype))


def _quantized(
    x: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, given: torch.dtype
) -> Masked:
    dtype = wide(x.dtype)
    step = scale.to(torch.float32)
    units = x.to(dtype) * step.reciprocal().to(dtype)
    zero = zero_point.to(dtype)
    # A zero point of a float dtype is rounded together with the quotient.
    level = torch.round(units + zero) if zero_point.dtype in _FLOATS else torch.round(units) + zero
    found = (level.clamp(quant_min, quant_max) - zero).to(given) * step.to(given)
    return found.to(x.dtype), (level >= quant_min) & (level <= quant_max)


def to_integers(
    x: Tensor, scale: Value, zero_point: Value, quant_min: Value, quant_max: Value, dtype: torch.dtype
) -> Tensor:
    level = torch.round(x.to(wide(x.dtype)) * (1.0 / _plain(scale))) + _plain(zero_point)
    return level.clamp(_plain(quant_min), _plain(quant_max)).to(dtype)


def to_floats(
    x: Tensor,
    scale: Value,
    zero_point: Value,
    quant_min: Value,  # what the op is told beside
    quant_max: Value,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    return (x.to(out_dtype or torch.float32) - _plain(zero_point)) * _plain(scale)


def _plain(value: Value) -> Any:
    """A number as it is, and a tensor's only one as a tensor that promotes like a number."""
    return value.reshape(()) if isinstance(value, Tensor) else value


def channels_to_integers(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Tensor:
    shape = _along(axis, x)
    level = torch.round(x.to(wide(x.dtype)) * (1.0 / scales.reshape(shape))) + zero_points.reshape(shape)
    return level.clamp(quant_min, quant_max).to(dtype)


def channels_to_floats(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    quant_min: int,  # what the op is told beside
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    shape = _along(axis, x)
    steps = x if zero_points is None else x - zero_points.reshape(shape)
    return (steps * scales.reshape(shape)).to(out_dtype or torch.float32)


def _along(axis: int, x: Tensor) -> list[int]:
    return [-1 if dim == axis % x.dim() else 1 for dim in range(x.dim())]


_LIBRARY: Final = "quantized_decomposed"
LIBRARIES: Final[Mapping[str, Callable[..., Any]]] = {
    f"{_LIBRARY}::quantize_per_channel": channels_to_integers,
    f"{_LIBRARY}::dequantize_per_channel": channels_to_floats,
    **{f"{_LIBRARY}::quantize_per_tensor{overload}": to_integers for overload in ("", ".tensor", ".tensor2")},
    **{f"{_LIBRARY}::dequantize_per_tensor{overload}": to_floats for overload in ("", ".tensor", ".tensor2")},
}
"""Ops that torch registers when its quantizer is imported, by qualified name; `default` is left out."""


def rrelu(
    x: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,  # the op's own
) -> Any:
    """A leaky relu, which draws its slopes in train mode only."""
    if training:
        return NotImplemented
    return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise


DECOMPOSITIONS: Table = {
    aten.rrelu_with_noise_functional.default: rrelu,
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
    aten.rsub.Scalar: either(reversed_sub, torch._refs.rsub),  # torch's own entry
    aten._conj.default: conjugate,
    aten.polar.default: polar,
    aten.polygamma.default: polygamma,
    aten.frexp.Tensor: frexp,
    aten.ldexp.Tensor: ldexp,
    aten.special_spherical_bessel_j0.default: spherical_bessel_j0,
    aten.fake_quantize_per_tensor_affine_cachemask.default: per_tensor,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: per_tensor_of_tensors,
    aten.fake_quantize_per_channel_affine_cachemask.default: per_channel,
}
