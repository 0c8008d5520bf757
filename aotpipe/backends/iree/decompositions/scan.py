"""Sorts, and running sums, products and extrema.

IREE's own sort is a serial bubble sort, not stable, that knows no NaN. Here an element's rank is counted
(`passes.decompositions.ordering`), which is as many comparisons, but vectorized, in one fused reduction.
A running product of a static size is a scan by doubling: log2(size) elementwise steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from aotpipe.backends.iree.decompositions.reduction import sum_dtype
from aotpipe.passes.decompositions.entries import Table, back, empty, iota, last, static, widened
from aotpipe.passes.decompositions.ordering import Pair, comparable, ranks

aten = torch.ops.aten


def sort(
    tensor: torch.Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = True
) -> Pair:
    """A stable sort, whether `stable` asks for one or not."""
    if not tensor.dim() or empty(tensor):
        return tensor.clone(), torch.zeros_like(tensor, dtype=torch.int64)
    values = last(tensor, dim)
    indices = _order(values, descending)
    return back(values.gather(-1, indices), dim, tensor), back(indices, dim, tensor)


def _order(values: torch.Tensor, descending: bool) -> torch.Tensor:
    """The indices that sort the last dim."""
    place = ranks(values, descending).to(torch.int64)
    numbers = iota(values.shape[-1], values).expand(values.shape)
    return torch.zeros_like(place).scatter(-1, place, numbers)


def topk(tensor: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    if not tensor.dim():
        return tensor.reshape(1)[:k].reshape(()), torch.zeros_like(tensor, dtype=torch.int64)
    values = last(tensor, dim)
    indices = _order(values, largest).narrow(-1, 0, k)
    return back(values.gather(-1, indices), dim, tensor), back(indices, dim, tensor)


def _seen(rows: torch.Tensor) -> torch.Tensor:
    """Which elements of the last dim are read for each: itself and those before, `(size, size)`."""
    numbers = iota(rows.shape[-1], rows)
    return numbers.unsqueeze(-2) <= numbers.unsqueeze(-1)


def _running_extremum(tensor: torch.Tensor, dim: int, *, largest: bool) -> Pair:
    """The running extremum and the last index that holds it."""
    if not tensor.dim() or empty(tensor):
        return tensor.clone(), torch.zeros_like(tensor, dtype=torch.int64)
    values = last(tensor, dim)
    compared, seen = comparable(values), _seen(values)
    mine, other = compared.unsqueeze(-1), compared.unsqueeze(-2)
    # An element is its run's extremum if nothing seen is beyond it; the last such index is the answer.
    beyond = (other > mine) if largest else (other < mine)
    if tensor.is_floating_point():
        beyond = (beyond & (mine == mine)) | ((other != other) & (mine == mine))
    record = (beyond & seen).to(torch.int32).sum(-1, dtype=torch.int32) == 0
    numbers = iota(values.shape[-1], tensor).unsqueeze(-2)
    index = torch.where(record.unsqueeze(-2) & seen, numbers, -1).amax(-1)
    return back(values.gather(-1, index), dim, tensor), back(index, dim, tensor)


def cumsum(tensor: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    result = sum_dtype(tensor, dtype)
    values = widened(tensor.to(result))[0]
    if not tensor.dim() or empty(tensor):
        return values.to(result).clone()
    if values.dtype != tensor.dtype or result != tensor.dtype:
        return aten.cumsum.default(values, dim).to(result)
    return NotImplemented


def cumprod(tensor: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    result = sum_dtype(tensor, dtype)
    return _scan(tensor.to(result), dim, 1, torch.mul, lambda rows: rows.prod(-1))


def logcumsumexp(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    return _scan(tensor, dim, -torch.inf, torch.logaddexp, lambda rows: rows.logsumexp(-1))


def _scan(
    tensor: torch.Tensor,
    dim: int,
    unit: float,
    combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    reduce: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """A scan along a dim by an associative function; a dim of a dynamic size is reduced for each element."""
    if empty(tensor):
        return tensor.clone()
    values = last(widened(tensor)[0], dim)
    size = values.shape[-1]
    if static(size):
        step = 1
        while step < size:
            before = torch.constant_pad_nd(values.narrow(-1, 0, size - step), [step, 0], unit)
            values = combine(before, values)
            step *= 2
    else:
        other = torch.full((), unit, dtype=values.dtype, device=values.device)
        values = reduce(torch.where(_seen(values), values.unsqueeze(-2), other))
    return back(values, dim, tensor).to(tensor.dtype)


DECOMPOSITIONS: Table = {
    aten.sort.default: sort,
    aten.sort.stable: sort,
    aten.topk.default: topk,
    aten.cummax.default: partial(_running_extremum, largest=True),
    aten.cummin.default: partial(_running_extremum, largest=False),
    aten.cumsum.default: cumsum,
    aten.cumprod.default: cumprod,
    aten.logcumsumexp.default: logcumsumexp,
}
