"""Sorting, selecting by rank, searching, and running maxima.

IREE's own sort is a serial bubble sort, not stable, that knows no NaN. Here an element's rank is counted:
how many elements come before it. That is as many comparisons, but vectorized, in one fused reduction, stable,
and with NaN as the greatest value, as eager orders them.
"""

from __future__ import annotations

import torch

from aotpipe.passes.decompositions.entries import Table, back, empty, iota, last, reduced

aten = torch.ops.aten
Pair = tuple[torch.Tensor, torch.Tensor]


def _less(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Eager's order of values: NaN is the greatest."""
    if not left.is_floating_point():
        return left < right
    return (left < right) | ((right != right) & (left == left))


def _same(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if not left.is_floating_point():
        return left == right
    return (left == right) | ((left != left) & (right != right))


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.int32) if tensor.dtype in (torch.bool, torch.uint8) else tensor


def ranks(tensor: torch.Tensor, descending: bool = False) -> torch.Tensor:
    """The place of each element along the last dim of the stable order, as int32."""
    values = _comparable(tensor)
    mine, other = values.unsqueeze(-1), values.unsqueeze(-2)
    size = tensor.shape[-1]
    earlier = iota(size, tensor).unsqueeze(-2) < iota(size, tensor).unsqueeze(-1)
    before = _less(mine, other) if descending else _less(other, mine)
    return (before | (_same(other, mine) & earlier)).to(torch.int32).sum(-1, dtype=torch.int32)


def sort(tensor: torch.Tensor, dim: int = -1, descending: bool = False) -> Pair:
    return sort_stable(tensor, stable=True, dim=dim, descending=descending)


def sort_stable(
    tensor: torch.Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> Pair:
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


def _select(values: torch.Tensor, place: torch.Tensor, k: int | torch.Tensor) -> Pair:
    """The element of rank `k` along the last dim, and its index."""
    chosen = place == k
    zero = torch.zeros((), dtype=values.dtype, device=values.device)
    index = torch.where(chosen, iota(values.shape[-1], values), 0).sum(-1)
    return torch.where(chosen, values, zero).sum(-1, dtype=values.dtype), index


def kthvalue(tensor: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    values = last(tensor, dim)
    value, index = _select(values, ranks(values), k - 1)
    return reduced(value, dim, keepdim, tensor), reduced(index, dim, keepdim, tensor)


def median_dim(tensor: torch.Tensor, dim: int, keepdim: bool = False) -> Pair:
    values = last(tensor, dim)
    place = ranks(values)
    size = values.shape[-1]
    if tensor.is_floating_point():
        # A NaN is the median of whatever holds one; the first NaN has the lowest rank of all NaNs.
        whole = (values == values).to(torch.int32).sum(-1, keepdim=True, dtype=torch.int32)
        middle = torch.where(whole == size, (size - 1) // 2, whole)
        value, index = _select(values, place, middle)
    else:
        value, index = _select(values, place, (size - 1) // 2)
    return reduced(value, dim, keepdim, tensor), reduced(index, dim, keepdim, tensor)


def nanmedian_dim(tensor: torch.Tensor, dim: int, keepdim: bool = False) -> Pair:
    if not tensor.is_floating_point():
        return median_dim(tensor, dim, keepdim)
    values = last(tensor, dim)
    whole = (values == values).to(torch.int32).sum(-1, keepdim=True, dtype=torch.int32)
    middle = torch.where(whole == 0, 0, (whole - 1) // 2)
    value, index = _select(values, ranks(values), middle)
    return reduced(value, dim, keepdim, tensor), reduced(index, dim, keepdim, tensor)


def median(tensor: torch.Tensor) -> torch.Tensor:
    return _of_all(tensor, median_dim)


def nanmedian(tensor: torch.Tensor) -> torch.Tensor:
    return _of_all(tensor, nanmedian_dim)


def _of_all(tensor: torch.Tensor, function: object) -> torch.Tensor:
    if empty(tensor):
        return torch.full((), float("nan"), dtype=tensor.dtype, device=tensor.device)
    assert callable(function)
    value, _ = function(tensor.reshape(-1), 0)
    assert isinstance(value, torch.Tensor)
    return value


def mode(tensor: torch.Tensor, dim: int = -1, keepdim: bool = False) -> Pair:
    values = last(tensor, dim)
    place = ranks(values)
    mine, other = _comparable(values).unsqueeze(-1), _comparable(values).unsqueeze(-2)
    count = (mine == other).to(torch.int64).sum(-1)
    often = count == count.amax(-1, keepdim=True)
    size = values.shape[-1]
    lowest = torch.where(often, place, size).amin(-1, keepdim=True)
    value, _ = _select(values, place, lowest)
    index = torch.where(values == value.unsqueeze(-1), iota(size, values), -1).amax(-1)
    return reduced(value, dim, keepdim, tensor), reduced(index, dim, keepdim, tensor)


def _running(tensor: torch.Tensor, dim: int, largest: bool) -> Pair:
    """The running extremum and the last index that holds it."""
    if not tensor.dim() or empty(tensor):
        return tensor.clone(), torch.zeros_like(tensor, dtype=torch.int64)
    values = last(tensor, dim)
    size = values.shape[-1]
    compared = _comparable(values)
    mine, other = compared.unsqueeze(-1), compared.unsqueeze(-2)
    numbers = iota(size, tensor)
    seen = numbers.unsqueeze(-2) <= numbers.unsqueeze(-1)
    # An element is its run's extremum if nothing seen is beyond it; the last such index is the answer.
    beyond = (other > mine) if largest else (other < mine)
    if tensor.is_floating_point():
        beyond = (beyond & (mine == mine)) | ((other != other) & (mine == mine))
    record = (beyond & seen).to(torch.int32).sum(-1, dtype=torch.int32) == 0
    index = torch.where(record.unsqueeze(-2) & seen, numbers.unsqueeze(-2), -1).amax(-1)
    return back(values.gather(-1, index), dim, tensor), back(index, dim, tensor)


def cummax(tensor: torch.Tensor, dim: int) -> Pair:
    return _running(tensor, dim, largest=True)


def cummin(tensor: torch.Tensor, dim: int) -> Pair:
    return _running(tensor, dim, largest=False)


def searchsorted(
    sequence: torch.Tensor,
    values: torch.Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> torch.Tensor:
    if sorter is not None:
        sequence = sequence.gather(-1, sorter)
    dtype = torch.int32 if out_int32 else torch.int64
    if empty(sequence, values):
        return torch.zeros_like(values, dtype=dtype)
    return _count(sequence, values, right or side == "right", dtype)


def searchsorted_scalar(sequence: torch.Tensor, value: float, **options: object) -> torch.Tensor:
    scalar = torch.full((), value, dtype=sequence.dtype, device=sequence.device)
    return searchsorted(sequence, scalar, **options)  # type: ignore[arg-type]


def _count(sequence: torch.Tensor, values: torch.Tensor, right: bool, dtype: torch.dtype) -> torch.Tensor:
    if sequence.dim() == 1:
        compared = values.unsqueeze(-1)
    else:
        sequence, compared = sequence.unsqueeze(-2), values.unsqueeze(-1)
    # Negated as in a binary search, so that a NaN is after all.
    beyond = (sequence > compared) if right else (sequence >= compared)
    return (~beyond).to(dtype).sum(-1, dtype=dtype)


def bucketize(
    values: torch.Tensor, boundaries: torch.Tensor, *, out_int32: bool = False, right: bool = False
) -> torch.Tensor:
    return searchsorted(boundaries, values, out_int32=out_int32, right=right)


def bucketize_scalar(value: float, boundaries: torch.Tensor, **options: object) -> torch.Tensor:
    return searchsorted_scalar(boundaries, value, **options)


DECOMPOSITIONS: Table = {
    aten.sort.default: sort,
    aten.sort.stable: sort_stable,
    aten.topk.default: topk,
    aten.kthvalue.default: kthvalue,
    aten.median.default: median,
    aten.median.dim: median_dim,
    aten.nanmedian.default: nanmedian,
    aten.nanmedian.dim: nanmedian_dim,
    aten.mode.default: mode,
    aten.cummax.default: cummax,
    aten.cummin.default: cummin,
    aten.searchsorted.Tensor: searchsorted,
    aten.searchsorted.Scalar: searchsorted_scalar,
    aten.bucketize.Tensor: bucketize,
    aten.bucketize.Scalar: bucketize_scalar,
}
