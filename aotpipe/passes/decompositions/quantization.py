"""Quantization: to integers of few bits and back, and to what such an integer could hold, in floats.

Neither compiler has the fake kind. As eager's kernels do it, the scale is a float32 whose inverse is taken
first, the quotient is rounded to even before the zero point is added, and the mask tells what was not
clamped. What has one scale is float32 in the end, of float64 too.

PT2E writes the real kind as ops of a library of torch's own, which IREE's importer knows (`LIBRARIES`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from aotpipe.passes.decompositions.entries import Table, wide

aten = torch.ops.aten

Masked = tuple[torch.Tensor, torch.Tensor]
_FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)


def per_tensor(x: torch.Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int) -> Masked:
    step = torch.full((), scale, dtype=torch.float32, device=x.device)
    zero = torch.full((), zero_point, dtype=torch.int64, device=x.device)
    return _quantized(x, step, zero, quant_min, quant_max, torch.float32)


def per_tensor_of_tensors(
    x: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    fake_quant_enabled: torch.Tensor,
    quant_min: int,
    quant_max: int,
) -> Masked:
    step, zero = scale.reshape(()), zero_point.reshape(())
    found, mask = _quantized(x, step, zero, quant_min, quant_max, torch.float32)
    enabled = fake_quant_enabled.reshape(()) != 0
    return torch.where(enabled, found, x), mask | ~enabled


def per_channel(
    x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, axis: int, quant_min: int, quant_max: int
) -> Masked:
    shape = _along(axis, x)
    step, zero = scale.reshape(shape), zero_point.reshape(shape)
    return _quantized(x, step, zero, quant_min, quant_max, wide(x.dtype))


def _quantized(
    x: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    quant_min: int,
    quant_max: int,
    given: torch.dtype,
) -> Masked:
    dtype = wide(x.dtype)
    step = scale.to(torch.float32)
    units = x.to(dtype) * step.reciprocal().to(dtype)
    zero = zero_point.to(dtype)
    # A zero point of a float dtype is rounded together with the quotient.
    level = torch.round(units + zero) if zero_point.dtype in _FLOATS else torch.round(units) + zero
    found = (level.clamp(quant_min, quant_max) - zero).to(given) * step.to(given)
    return found.to(x.dtype), (level >= quant_min) & (level <= quant_max)


Number = float | torch.Tensor


def to_integers(
    x: torch.Tensor,
    scale: Number,
    zero_point: Number,
    quant_min: Number,
    quant_max: Number,
    dtype: torch.dtype,
) -> torch.Tensor:
    level = torch.round(x.to(wide(x.dtype)) * (1.0 / _plain(scale))) + _plain(zero_point)
    return level.clamp(_plain(quant_min), _plain(quant_max)).to(dtype)


def to_floats(
    x: torch.Tensor,
    scale: Number,
    zero_point: Number,
    quant_min: Number,  # what the op is told beside
    quant_max: Number,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    return (x.to(out_dtype or torch.float32) - _plain(zero_point)) * _plain(scale)


def _plain(value: Number) -> Any:
    """A number as it is, and a tensor's only one as a tensor that promotes like a number."""
    return value.reshape(()) if isinstance(value, torch.Tensor) else value


def channels_to_integers(
    x: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    shape = _along(axis, x)
    level = torch.round(x.to(wide(x.dtype)) * (1.0 / scales.reshape(shape))) + zero_points.reshape(shape)
    return level.clamp(quant_min, quant_max).to(dtype)


def channels_to_floats(
    x: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor | None,
    axis: int,
    quant_min: int,  # what the op is told beside
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    shape = _along(axis, x)
    steps = x if zero_points is None else x - zero_points.reshape(shape)
    return (steps * scales.reshape(shape)).to(out_dtype or torch.float32)


def _along(axis: int, x: torch.Tensor) -> list[int]:
    """The shape of a vector along one dim."""
    return [-1 if dim == axis % x.dim() else 1 for dim in range(x.dim())]


_LIBRARY: Final = "quantized_decomposed"
LIBRARIES: Final[Mapping[str, Callable[..., Any]]] = {
    f"{_LIBRARY}::quantize_per_channel": channels_to_integers,
    f"{_LIBRARY}::dequantize_per_channel": channels_to_floats,
    **{f"{_LIBRARY}::quantize_per_tensor{overload}": to_integers for overload in ("", ".tensor", ".tensor2")},
    **{f"{_LIBRARY}::dequantize_per_tensor{overload}": to_floats for overload in ("", ".tensor", ".tensor2")},
}
"""Ops that torch registers when its quantizer is imported, by qualified name; `default` is left out."""

DECOMPOSITIONS: Table = {
    aten.fake_quantize_per_tensor_affine_cachemask.default: per_tensor,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: per_tensor_of_tensors,
    aten.fake_quantize_per_channel_affine_cachemask.default: per_channel,
}
