"""Reductions, scans and sorts, with eager's answers for rank 0, empty dims, NaN and half precision.

IREE's own sort is a serial bubble sort, not stable, that knows no NaN. Here an element's rank is counted
(`passes.decompositions.ordering`), which is as many comparisons, but vectorized, in one fused reduction.
A running product of a static size is a scan by doubling: log2(size) elementwise steps.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from math import prod
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from aotpipe.backends.iree.decompositions.integers import in_int32
from aotpipe.passes.decompositions.entries import (
    HALF,
    Table,
    back,
    empty,
    iota,
    last,
    reduced,
    static,
    widened,
)
from aotpipe.passes.decompositions.ordering import Pair, comparable, ranks

aten = torch.ops.aten
Dims = Sequence[int] | None


def _dims(tensor: torch.Tensor, dim: Dims) -> list[int]:
    if not dim:
        return list(range(tensor.dim()))
    return [axis % tensor.dim() for axis in dim] if tensor.dim() else []


def _shape(tensor: torch.Tensor, dims: Sequence[int], keepdim: bool) -> list[int]:
    sizes = [1 if axis in dims else size for axis, size in enumerate(tensor.shape)]
    return sizes if keepdim else [size for axis, size in enumerate(tensor.shape) if axis not in dims]


def _count(tensor: torch.Tensor, dims: Sequence[int]) -> int:
    return prod(tensor.shape[axis] for axis in dims)


def _sum_dtype(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """The dtype of a sum or a product, where the call asks for one or for none."""
    inexact = tensor.is_floating_point() or tensor.is_complex()
    return dtype or (tensor.dtype if inexact else torch.int64)


def _accumulated(
    op: Callable[..., torch.Tensor],
    tensor: torch.Tensor,
    unit: int,
    dims: Any,
    keepdim: bool,
    dtype: torch.dtype,
) -> torch.Tensor:
    """A sum or a product in the dtype that eager computes it in; NotImplemented where the op has that."""
    if empty(tensor):
        shape = _shape(tensor, _dims(tensor, [dims] if isinstance(dims, int) else dims), keepdim)
        return torch.full(shape, unit, dtype=dtype, device=tensor.device)
    if not tensor.dim():
        return tensor.to(dtype)
    if dtype in HALF:
        return op(tensor.float(), dims, keepdim).to(dtype)
    if dtype is torch.bool:
        return op(tensor.to(dtype).to(torch.int64), dims, keepdim).to(dtype)
    # Without its dtype, a sum of int32 is one of int64.
    return op(tensor.to(dtype), dims, keepdim, dtype=dtype) if tensor.dtype != dtype else NotImplemented


def sum_dim(
    tensor: torch.Tensor, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    dims, dtype = _dims(tensor, dim), _sum_dtype(tensor, dtype)
    return _accumulated(torch.sum, tensor, 0, dims, keepdim, dtype)


def mean_dim(
    tensor: torch.Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    dims = _dims(tensor, dim)
    result = dtype or tensor.dtype
    values = widened(tensor.to(result))[0]
    return (values.sum(dims, keepdim) / _count(tensor, dims)).to(result)


def _extremum(tensor: torch.Tensor, dim: Dims = (), keepdim: bool = False, *, largest: bool) -> torch.Tensor:
    dims = _dims(tensor, dim)
    if not tensor.dim():
        return tensor.clone()
    if empty(tensor):
        # Only dims that are not empty can be reduced: the result is empty too.
        return tensor.new_empty(_shape(tensor, dims, keepdim))
    if tensor.dtype in (torch.bool, torch.uint8):
        return in_int32(torch.amax if largest else torch.amin, tensor, dim=dims, keepdim=keepdim)
    return NotImplemented


def _with_index(tensor: torch.Tensor, dim: int, keepdim: bool = False, *, largest: bool) -> Pair:
    """The extremum and its first index; a NaN is beyond every number."""
    if not tensor.dim():
        return tensor.clone(), torch.zeros_like(tensor, dtype=torch.int64)
    if empty(tensor):
        shape = _shape(tensor, [dim % tensor.dim()], keepdim)
        return tensor.new_empty(shape), tensor.new_empty(shape, dtype=torch.int64)
    index = _first_extremum(tensor, dim, largest)
    # The value is gathered, not reduced again, so that it is the one at the index, and NaN where that is NaN.
    value = tensor.gather(dim, index)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


def _first_extremum(tensor: torch.Tensor, dim: int, largest: bool) -> torch.Tensor:
    values = comparable(tensor)
    best = torch.amax(values, [dim], True) if largest else torch.amin(values, [dim], True)
    hit = values == best
    if tensor.is_floating_point():
        whole = values == values
        hit = torch.where(whole.all(dim, True), hit, ~whole)
    size = tensor.shape[dim]
    shape = [1] * tensor.dim()
    shape[dim] = size
    numbers = iota(size, tensor).reshape(shape)
    return torch.where(hit, numbers, size).amin([dim], True)


def _index(
    tensor: torch.Tensor, dim: int | None = None, keepdim: bool = False, *, largest: bool
) -> torch.Tensor:
    if tensor.dim() and dim is None:
        index = _with_index(tensor.reshape(-1), 0, largest=largest)[1]
        return index.reshape([1] * tensor.dim()) if keepdim else index
    return _with_index(tensor, dim or 0, keepdim, largest=largest)[1]


def any_dims(tensor: torch.Tensor, dim: int | Dims = None, keepdim: bool = False) -> torch.Tensor:
    chosen = [dim] if isinstance(dim, int) else dim
    dims = [] if chosen is not None and not chosen else _dims(tensor, chosen)
    result = torch.uint8 if tensor.dtype == torch.uint8 else torch.bool
    true = tensor != 0 if tensor.dtype != torch.bool else tensor
    if not dims:
        return true.to(result)
    if empty(tensor):
        return torch.zeros(_shape(tensor, dims, keepdim), dtype=result, device=tensor.device)
    if free_unbacked_symbols([tensor.shape[dim] for dim in dims]):
        # torch asserts that what has an extremum has an element; this may have none.
        return (true.sum(dims, keepdim) > 0).to(result)
    return (true.to(torch.int32).amax(dims, keepdim) > 0).to(result)


def all_dims(tensor: torch.Tensor, dim: int | Dims = None, keepdim: bool = False) -> torch.Tensor:
    result = torch.uint8 if tensor.dtype == torch.uint8 else torch.bool
    return (~any_dims(tensor == 0, dim, keepdim)).to(result)


def prod_dim(
    tensor: torch.Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    found = _accumulated(torch.prod, tensor, 1, dim, keepdim, _sum_dtype(tensor, dtype))
    if found is not NotImplemented or not tensor.is_complex() or not static(tensor.shape[dim]):
        return found
    return reduced(reduce(operator.mul, last(tensor, dim).unbind(-1)), dim, keepdim, tensor)


def _moments(
    tensor: torch.Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> Pair:
    dims = _dims(tensor, dim)
    count = _count(tensor, dims)
    values = widened(tensor)[0]
    average = values.sum(dims, True) / count
    centered = values - average
    squares = (centered * centered.conj_physical()).real if tensor.is_complex() else centered * centered
    left = count - (1 if correction is None else correction)
    # A Python maximum of a SymInt would be a guard; as numbers of a graph they need none.
    freedom = max(left, 0) if static(count) else torch.sym_max(left, 0)
    total = squares.sum(dims, keepdim)
    spread = total / freedom if not static(count) or freedom else total / torch.zeros_like(total)
    average = average if keepdim else average.reshape(_shape(tensor, dims, False))
    real = tensor.real.dtype if tensor.is_complex() else tensor.dtype
    return spread.to(real), average.to(tensor.dtype)


def softmax(tensor: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    if not tensor.dim():
        return torch.where(tensor == tensor, torch.ones_like(tensor), tensor)
    if empty(tensor):
        return tensor.clone()
    if tensor.dtype in HALF:
        wide = aten._softmax.default(tensor.float(), dim, False)
        return wide if half_to_float else wide.to(tensor.dtype)
    return NotImplemented


def log_softmax(tensor: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    if not tensor.dim():
        return tensor - tensor
    if empty(tensor):
        return tensor.clone()
    values = widened(tensor)[0]
    shifted = values - values.amax([dim], True)
    out = shifted - shifted.exp().sum([dim], True).log()
    return out if half_to_float else out.to(tensor.dtype)


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
    place = ranks(values, descending).to(torch.int64)
    numbers = iota(values.shape[-1], values).expand(values.shape)
    return torch.zeros_like(place).scatter(-1, place, numbers)


def topk(tensor: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    if not tensor.dim():
        return tensor.reshape(1)[:k].reshape(()), torch.zeros_like(tensor, dtype=torch.int64)
    values = last(tensor, dim)
    indices = _order(values, largest).narrow(-1, 0, k)
    return back(values.gather(-1, indices), dim, tensor), back(indices, dim, tensor)


def _seen(numbers: torch.Tensor) -> torch.Tensor:
    """Which of numbered elements are read for each: itself and those before, `(size, size)`."""
    return numbers.unsqueeze(-2) <= numbers.unsqueeze(-1)


def _running_extremum(tensor: torch.Tensor, dim: int, *, largest: bool) -> Pair:
    if not tensor.dim() or empty(tensor):
        return tensor.clone(), torch.zeros_like(tensor, dtype=torch.int64)
    values = last(tensor, dim)
    compared = comparable(values)
    mine, other = compared.unsqueeze(-1), compared.unsqueeze(-2)
    numbers = iota(values.shape[-1], tensor)
    seen = _seen(numbers)
    # An element is its run's extremum if nothing seen is beyond it; the last such index is the answer.
    beyond = (other > mine) if largest else (other < mine)
    if tensor.is_floating_point():
        beyond = (beyond & (mine == mine)) | ((other != other) & (mine == mine))
    record = (beyond & seen).to(torch.int32).sum(-1, dtype=torch.int32) == 0
    index = torch.where(record.unsqueeze(-2) & seen, numbers.unsqueeze(-2), -1).amax(-1)
    return back(values.gather(-1, index), dim, tensor), back(index, dim, tensor)


def cumsum(tensor: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    result = _sum_dtype(tensor, dtype)
    values = widened(tensor.to(result))[0]
    if not tensor.dim() or empty(tensor):
        return values.to(result).clone()
    if values.dtype != tensor.dtype or result != tensor.dtype:
        return aten.cumsum.default(values, dim).to(result)
    return NotImplemented


def cumprod(tensor: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    result = _sum_dtype(tensor, dtype)
    return _scan(tensor.to(result), dim, 1, torch.mul, lambda rows: rows.prod(-1))


def logcumsumexp(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    return _scan(tensor, dim, -torch.inf, torch.logaddexp, lambda rows: rows.logsumexp(-1))


def _scan(
    tensor: torch.Tensor,
    dim: int,
    unit: float,
    combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    whole: Callable[[torch.Tensor], torch.Tensor],
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
        seen = _seen(iota(size, values))
        values = whole(torch.where(seen, values.unsqueeze(-2), other))
    return back(values, dim, tensor).to(tensor.dtype)


DECOMPOSITIONS: Table = {
    aten.sum.dim_IntList: sum_dim,
    aten.mean.default: mean_dim,
    aten.mean.dim: mean_dim,
    aten.amax.default: partial(_extremum, largest=True),
    aten.amin.default: partial(_extremum, largest=False),
    aten.max.default: lambda tensor: torch.amax(tensor, _dims(tensor, None)),
    aten.min.default: lambda tensor: torch.amin(tensor, _dims(tensor, None)),
    aten.max.dim: partial(_with_index, largest=True),
    aten.min.dim: partial(_with_index, largest=False),
    aten.argmax.default: partial(_index, largest=True),
    aten.argmin.default: partial(_index, largest=False),
    aten.any.default: any_dims,
    aten.any.dim: any_dims,
    aten.any.dims: any_dims,
    aten.all.default: all_dims,
    aten.all.dim: all_dims,
    aten.all.dims: all_dims,
    aten.prod.default: lambda tensor, **options: prod_dim(tensor.reshape(-1), 0, **options),
    aten.prod.dim_int: prod_dim,
    aten.var.correction: lambda *args, **options: _moments(*args, **options)[0],
    aten.var_mean.correction: _moments,
    aten._softmax.default: softmax,
    aten._log_softmax.default: log_softmax,
    aten.sort.default: sort,
    aten.sort.stable: sort,
    aten.topk.default: topk,
    aten.cummax.default: partial(_running_extremum, largest=True),
    aten.cummin.default: partial(_running_extremum, largest=False),
    aten.cumsum.default: cumsum,
    aten.cumprod.default: cumprod,
    aten.logcumsumexp.default: logcumsumexp,
}
