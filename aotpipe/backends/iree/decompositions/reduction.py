"""Reductions, with eager's answers for rank 0, empty dims, NaN and half precision."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aotpipe.passes.decompositions.entries import HALF, Table, empty, iota, last, reduced, static, widened

aten = torch.ops.aten
Dims = Sequence[int] | None
Pair = tuple[torch.Tensor, torch.Tensor]


def _dims(tensor: torch.Tensor, dim: Dims) -> list[int]:
    """Every dim that is reduced, counted from 0."""
    if not dim:
        return list(range(tensor.dim()))
    return [axis % tensor.dim() for axis in dim] if tensor.dim() else []


def _shape(tensor: torch.Tensor, dims: Sequence[int], keepdim: bool) -> list[int]:
    """The shape of a reduction's result."""
    sizes = [1 if axis in dims else size for axis, size in enumerate(tensor.shape)]
    return sizes if keepdim else [size for axis, size in enumerate(tensor.shape) if axis not in dims]


def _filled(tensor: torch.Tensor, dims: Sequence[int], keepdim: bool, value: float) -> torch.Tensor:
    return torch.full(_shape(tensor, dims, keepdim), value, dtype=tensor.dtype, device=tensor.device)


def _count(tensor: torch.Tensor, dims: Sequence[int]) -> int:
    count = 1
    for axis in dims:
        count *= tensor.shape[axis]
    return count


def sum_dim(
    tensor: torch.Tensor, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    dims = _dims(tensor, dim)
    if dtype is None:
        exact = not tensor.is_floating_point() and not tensor.is_complex()
        dtype = torch.int64 if exact else tensor.dtype
    if empty(tensor):
        return torch.zeros(_shape(tensor, dims, keepdim), dtype=dtype, device=tensor.device)
    if not tensor.dim():
        return tensor.to(dtype)
    if dtype in HALF:
        return tensor.float().sum(dims, keepdim).to(dtype)
    if tensor.dtype != dtype:
        return tensor.to(dtype).sum(dims, keepdim)
    return NotImplemented


def mean_dim(
    tensor: torch.Tensor, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    dims = _dims(tensor, dim)
    result = dtype or tensor.dtype
    values = widened(tensor.to(result))[0]
    return (values.sum(dims, keepdim) / _count(tensor, dims)).to(result)


def mean(tensor: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    return mean_dim(tensor, None, dtype=dtype)


def amax(tensor: torch.Tensor, dim: Dims = (), keepdim: bool = False) -> torch.Tensor:
    return _extremum(tensor, dim, keepdim, largest=True)


def amin(tensor: torch.Tensor, dim: Dims = (), keepdim: bool = False) -> torch.Tensor:
    return _extremum(tensor, dim, keepdim, largest=False)


def _extremum(tensor: torch.Tensor, dim: Dims, keepdim: bool, *, largest: bool) -> torch.Tensor:
    dims = _dims(tensor, dim)
    if not tensor.dim():
        return tensor.clone()
    if empty(tensor):
        # Only dims that are not empty can be reduced: the result is empty too.
        return tensor.new_empty(_shape(tensor, dims, keepdim))
    reduce = torch.amax if largest else torch.amin
    if tensor.dtype in (torch.bool, torch.uint8):
        return reduce(tensor.to(torch.int32), dims, keepdim).to(tensor.dtype)
    return NotImplemented


def max_all(tensor: torch.Tensor) -> torch.Tensor:
    return torch.amax(tensor, list(range(tensor.dim())))


def min_all(tensor: torch.Tensor) -> torch.Tensor:
    return torch.amin(tensor, list(range(tensor.dim())))


def max_dim(tensor: torch.Tensor, dim: int, keepdim: bool = False) -> Pair:
    return _with_index(tensor, dim, keepdim, largest=True)


def min_dim(tensor: torch.Tensor, dim: int, keepdim: bool = False) -> Pair:
    return _with_index(tensor, dim, keepdim, largest=False)


def _with_index(tensor: torch.Tensor, dim: int, keepdim: bool, *, largest: bool) -> Pair:
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
    """The first index of the extremum, with the dim kept."""
    values = tensor.to(torch.int32) if tensor.dtype in (torch.bool, torch.uint8) else tensor
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


def argmax(tensor: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    return _arg(tensor, dim, keepdim, largest=True)


def argmin(tensor: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    return _arg(tensor, dim, keepdim, largest=False)


def _arg(tensor: torch.Tensor, dim: int | None, keepdim: bool, *, largest: bool) -> torch.Tensor:
    if not tensor.dim():
        return torch.zeros_like(tensor, dtype=torch.int64)
    if dim is None:
        index = _with_index(tensor.reshape(-1), 0, False, largest=largest)[1]
        return index.reshape([1] * tensor.dim()) if keepdim else index
    return _with_index(tensor, dim, keepdim, largest=largest)[1]


def any_dims(tensor: torch.Tensor, dim: Dims = None, keepdim: bool = False) -> torch.Tensor:
    dims = list(range(tensor.dim())) if dim is None else _dims(tensor, dim) if dim else []
    result = torch.uint8 if tensor.dtype == torch.uint8 else torch.bool
    true = tensor != 0 if tensor.dtype != torch.bool else tensor
    if not dims or not tensor.dim():
        return true.to(result)
    if empty(tensor):
        return torch.zeros(_shape(tensor, dims, keepdim), dtype=result, device=tensor.device)
    return (true.to(torch.int32).amax(dims, keepdim) != 0).to(result)


def all_dims(tensor: torch.Tensor, dim: Dims = None, keepdim: bool = False) -> torch.Tensor:
    result = torch.uint8 if tensor.dtype == torch.uint8 else torch.bool
    return (~any_dims(tensor == 0, dim, keepdim)).to(result)


def any_all(tensor: torch.Tensor) -> torch.Tensor:
    return any_dims(tensor)


def all_all(tensor: torch.Tensor) -> torch.Tensor:
    return all_dims(tensor)


def any_dim(tensor: torch.Tensor, dim: int, keepdim: bool = False) -> torch.Tensor:
    return any_dims(tensor, [dim], keepdim)


def all_dim(tensor: torch.Tensor, dim: int, keepdim: bool = False) -> torch.Tensor:
    return all_dims(tensor, [dim], keepdim)


def prod(tensor: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    return prod_dim(tensor.reshape(-1), 0, dtype=dtype)


def prod_dim(
    tensor: torch.Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    if dtype is None:
        exact = not tensor.is_floating_point() and not tensor.is_complex()
        dtype = torch.int64 if exact else tensor.dtype
    if not tensor.dim():
        return tensor.to(dtype)
    if empty(tensor):
        shape = _shape(tensor, [dim % tensor.dim()], keepdim)
        return torch.ones(shape, dtype=dtype, device=tensor.device)
    if dtype in HALF:
        return tensor.float().prod(dim, keepdim).to(dtype)
    if tensor.dtype != dtype:
        return tensor.to(dtype).prod(dim, keepdim)
    return _folded_prod(tensor, dim, keepdim) if tensor.is_complex() else NotImplemented


def _folded_prod(tensor: torch.Tensor, dim: int, keepdim: bool) -> torch.Tensor:
    values = last(tensor, dim)
    if not static(values.shape[-1]):
        return NotImplemented
    factors = values.unbind(-1)
    product = factors[0]
    for factor in factors[1:]:
        product = product * factor
    return reduced(product, dim, keepdim, tensor)


def var_correction(
    tensor: torch.Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> torch.Tensor:
    return _moments(tensor, dim, correction, keepdim)[0]


def std_correction(
    tensor: torch.Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> torch.Tensor:
    return _moments(tensor, dim, correction, keepdim, root=True)[0]


def var_mean_correction(
    tensor: torch.Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> Pair:
    return _moments(tensor, dim, correction, keepdim)


def std_mean_correction(
    tensor: torch.Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> Pair:
    return _moments(tensor, dim, correction, keepdim, root=True)


def _moments(
    tensor: torch.Tensor, dim: Dims, correction: float | None, keepdim: bool, *, root: bool = False
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
    spread = spread.sqrt() if root else spread
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


DECOMPOSITIONS: Table = {
    aten.sum.dim_IntList: sum_dim,
    aten.mean.default: mean,
    aten.mean.dim: mean_dim,
    aten.amax.default: amax,
    aten.amin.default: amin,
    aten.max.default: max_all,
    aten.min.default: min_all,
    aten.max.dim: max_dim,
    aten.min.dim: min_dim,
    aten.argmax.default: argmax,
    aten.argmin.default: argmin,
    aten.any.default: any_all,
    aten.any.dim: any_dim,
    aten.any.dims: any_dims,
    aten.all.default: all_all,
    aten.all.dim: all_dim,
    aten.all.dims: all_dims,
    aten.prod.default: prod,
    aten.prod.dim_int: prod_dim,
    aten.var.correction: var_correction,
    aten.var_mean.correction: var_mean_correction,
    aten.std.correction: std_correction,
    aten.std_mean.correction: std_mean_correction,
    aten._softmax.default: softmax,
    aten._log_softmax.default: log_softmax,
}
