"""Cumulative products and sums: a scan by doubling, log2(size) elementwise steps, for a static size."""

from __future__ import annotations

from collections.abc import Callable

import torch

from aotpipe.passes.decompositions.entries import Table, back, empty, iota, last, static, widened

aten = torch.ops.aten


def _promoted(tensor: torch.Tensor, dtype: torch.dtype | None) -> tuple[torch.Tensor, torch.dtype]:
    """The tensor in the dtype to add in, and the result's dtype."""
    if dtype is None:
        inexact = tensor.is_floating_point() or tensor.is_complex()
        dtype = tensor.dtype if inexact else torch.int64
    return widened(tensor.to(dtype))[0], dtype


def _scan(
    tensor: torch.Tensor, dim: int, unit: float, combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    values = last(tensor, dim)
    size = values.shape[-1]
    step = 1
    while step < size:
        before = torch.constant_pad_nd(values.narrow(-1, 0, size - step), [step, 0], unit)
        values = combine(before, values)
        step *= 2
    return back(values, dim, tensor)


def _length(tensor: torch.Tensor, dim: int) -> object:
    return tensor.shape[dim] if tensor.dim() else 1


def cumsum(tensor: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    values, result = _promoted(tensor, dtype)
    if not tensor.dim() or empty(tensor):
        return values.to(result).clone()
    if values.dtype != tensor.dtype or result != tensor.dtype:
        return aten.cumsum.default(values, dim).to(result)
    return NotImplemented


def cumprod(tensor: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    values, result = _promoted(tensor, dtype)
    if empty(tensor):
        return values.to(result).clone()
    if static(_length(tensor, dim)):
        return _scan(values, dim, 1, torch.mul).to(result)
    rows = last(values, dim)
    one = torch.ones((), dtype=values.dtype, device=values.device)
    factors = torch.where(_seen(rows), rows.unsqueeze(-2), one)
    return back(factors.prod(-1), dim, tensor).to(result)


def logcumsumexp(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    if empty(tensor):
        return tensor.clone()
    values = widened(tensor)[0]
    if static(_length(tensor, dim)):
        return _scan(values, dim, -torch.inf, torch.logaddexp).to(tensor.dtype)
    rows = last(values, dim)
    minus = torch.full((), -torch.inf, dtype=values.dtype, device=values.device)
    return back(torch.where(_seen(rows), rows.unsqueeze(-2), minus).logsumexp(-1), dim, tensor).to(
        tensor.dtype
    )


def _seen(rows: torch.Tensor) -> torch.Tensor:
    numbers = iota(rows.shape[-1], rows)
    return numbers.unsqueeze(-2) <= numbers.unsqueeze(-1)


DECOMPOSITIONS: Table = {
    aten.cumsum.default: cumsum,
    aten.cumprod.default: cumprod,
    aten.logcumsumexp.default: logcumsumexp,
}
