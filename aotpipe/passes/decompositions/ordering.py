"""Selecting by rank, searching, what is unique, the extrema of a dim, and whether all or any are true.

An element's rank is counted: how many elements come before it. That is one vectorized, fused reduction,
stable, and with NaN as the greatest value, as eager orders them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from aotpipe.passes import ops
from aotpipe.passes.decompositions.entries import Table, empty, iota, last, reduced

aten = torch.ops.aten
Pair = tuple[Tensor, Tensor]
Triple = tuple[Tensor, Tensor, Tensor]


def _less(left: Tensor, right: Tensor) -> Tensor:
    """Eager's order of values: NaN is the greatest."""
    if not left.is_floating_point():
        return left < right
    return (left < right) | ((right != right) & (left == left))


def _same(left: Tensor, right: Tensor) -> Tensor:
    if not left.is_floating_point():
        return left == right
    return (left == right) | ((left != left) & (right != right))


def comparable(tensor: Tensor) -> Tensor:
    """The tensor in a dtype that both compilers compare as eager does."""
    return tensor.to(torch.int32) if tensor.dtype in (torch.bool, torch.uint8) else tensor


def ranks(tensor: Tensor, descending: bool = False) -> Tensor:
    """The place of each element along the last dim of the stable order, as int32."""
    values = comparable(tensor)
    mine, other = values.unsqueeze(-1), values.unsqueeze(-2)
    size = tensor.shape[-1]
    earlier = iota(size, tensor).unsqueeze(-2) < iota(size, tensor).unsqueeze(-1)
    before = _less(mine, other) if descending else _less(other, mine)
    return (before | (_same(other, mine) & earlier)).to(torch.int32).sum(-1, dtype=torch.int32)


def _select(values: Tensor, place: Tensor, k: int | Tensor) -> Pair:
    """The element of rank `k` along the last dim, and its index."""
    chosen = place == k
    zero = torch.zeros((), dtype=values.dtype, device=values.device)
    index = torch.where(chosen, iota(values.shape[-1], values), 0).sum(-1)
    return torch.where(chosen, values, zero).sum(-1, dtype=values.dtype), index


def _of_rank(
    tensor: Tensor, dim: int, keepdim: bool = False, *, rank: Callable[[Tensor], int | Tensor]
) -> Pair:
    """The element along `dim` whose rank `rank(values)` gives, and its index."""
    values = last(tensor, dim)
    value, index = _select(values, ranks(values), rank(values))
    return reduced(value, dim, keepdim, tensor), reduced(index, dim, keepdim, tensor)


def kthvalue(tensor: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    return _of_rank(tensor, dim, keepdim, rank=lambda _: k - 1)


def _numbers(values: Tensor) -> Tensor:
    return (values == values).to(torch.int32).sum(-1, keepdim=True, dtype=torch.int32)


def _middle(values: Tensor) -> int | Tensor:
    size = values.shape[-1]
    if not values.is_floating_point():
        return (size - 1) // 2
    # A NaN is the median of whatever holds one; the first NaN has the lowest rank of all NaNs.
    numbers = _numbers(values)
    return torch.where(numbers == size, (size - 1) // 2, numbers)


def _middle_of_numbers(values: Tensor) -> int | Tensor:
    if not values.is_floating_point():
        return _middle(values)
    numbers = _numbers(values)
    return torch.where(numbers == 0, 0, (numbers - 1) // 2)


def of_all(function: Callable[[Tensor, int], Pair], tensor: Tensor) -> Tensor:
    """A median over all elements."""
    if empty(tensor):
        return torch.full((), float("nan"), dtype=tensor.dtype, device=tensor.device)
    return function(tensor.reshape(-1), 0)[0]


def mode(tensor: Tensor, dim: int = -1, keepdim: bool = False) -> Pair:
    values = last(tensor, dim)
    place = ranks(values)
    mine, other = comparable(values).unsqueeze(-1), comparable(values).unsqueeze(-2)
    count = (mine == other).to(torch.int64).sum(-1)
    often = count == count.amax(-1, keepdim=True)
    size = values.shape[-1]
    lowest = torch.where(often, place, size).amin(-1, keepdim=True)
    value, _ = _select(values, place, lowest)
    index = torch.where(values == value.unsqueeze(-1), iota(size, values), -1).amax(-1)
    return reduced(value, dim, keepdim, tensor), reduced(index, dim, keepdim, tensor)


def searchsorted(
    sequence: Tensor,
    values: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    if sorter is not None:
        sequence = sequence.gather(-1, sorter)
    dtype = torch.int32 if out_int32 else torch.int64
    if empty(sequence, values):
        return torch.zeros_like(values, dtype=dtype)
    compared = values.unsqueeze(-1)
    if sequence.dim() != 1:
        sequence = sequence.unsqueeze(-2)
    # The comparison is negated as in a binary search, so that a NaN comes last.
    beyond = sequence > compared if right or side == "right" else sequence >= compared
    return (~beyond).to(dtype).sum(-1, dtype=dtype)


def searchsorted_scalar(sequence: Tensor, value: float, **options: object) -> Tensor:
    scalar = torch.full((), value, dtype=sequence.dtype, device=sequence.device)
    return searchsorted(sequence, scalar, **options)  # type: ignore[arg-type]


def _starts(rows: Tensor) -> Tensor:
    """Which slices along dim 0 differ from the one before; a NaN differs from every number."""
    place = iota(rows.shape[0], rows)
    before = rows.index_select(0, (place - 1).clamp(min=0))
    return (rows != before).any(1) | (place == 0)


def _rows(x: Tensor, dim: int) -> Tensor:
    """The slices along a dim as rows."""
    return comparable(x.movedim(dim, 0).unsqueeze(-1).flatten(1))


def _of_runs(x: Tensor, dim: int, starts: Tensor) -> Triple:
    """The first slice of each run along a dim, the run of each slice, and how many slices each run has."""
    place = torch.nonzero(starts).select(1, 0)
    ends = torch.cat([place, torch.full((1,), starts.shape[0], device=x.device)])
    count = ends.index_select(0, iota(place.shape[0], place) + 1) - place
    return x.index_select(dim, place), starts.to(torch.int64).cumsum(0) - 1, count


def _sorted_runs(x: Tensor, dim: int, order: Tensor) -> Triple:
    values = x.index_select(dim, order)
    found, run, count = _of_runs(values, dim, _starts(_rows(values, dim)))
    return found, torch.zeros_like(run).scatter(0, order, run), count


def _asked(found: Triple, shape: Sequence[int], inverse: bool, counts: bool) -> Triple:
    """The results of a flat tensor; what is not asked for is empty."""
    values, run, count = found
    none = run.new_empty(0)
    return values, run.reshape(shape) if inverse else none, count if counts else none


def unique(x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """Sorted in any case, as eager's is on a CPU."""
    if x.is_complex():
        return NotImplemented
    flat = x.reshape(-1)
    order = torch.sort(comparable(flat), stable=True)[1]
    return _asked(_sorted_runs(flat, 0, order), x.shape, return_inverse, return_counts)


def unique_dim(x: Tensor, dim: int, *_: bool) -> Any:
    if x.is_complex():
        return NotImplemented
    rows = _rows(x, dim)
    if x.is_floating_point():
        # Eager's order depends on the algorithm.
        ops.ASSERT_TENSOR((rows == rows).all(), "no slice of those that are compared holds NaN")
    mine, other = rows.unsqueeze(1), rows.unsqueeze(0)
    size = rows.shape[1]
    # Twice the place of the first difference, even where the other row is less there.
    place = 2 * iota(size, rows)
    first = torch.where(mine == other, 2 * size, place + (mine < other).to(torch.int64)).amin(-1)
    number = iota(rows.shape[0], rows)
    earlier = number.unsqueeze(0) < number.unsqueeze(1)
    before = torch.where(first == 2 * size, earlier, first % 2 == 0)
    return _sorted_runs(x, dim, torch.sort(before.to(torch.int64).sum(1))[1])


def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Triple:
    if dim is not None:
        return _of_runs(x, dim, _starts(_rows(x, dim)))
    flat = x.reshape(-1)
    return _asked(_of_runs(flat, 0, _starts(_rows(flat, 0))), x.shape, return_inverse, return_counts)


_MEDIAN: Final = partial(_of_rank, rank=_middle)
_NANMEDIAN: Final = partial(_of_rank, rank=_middle_of_numbers)
DECOMPOSITIONS: Table = {
    aten.kthvalue.default: kthvalue,
    aten.median.default: partial(of_all, _MEDIAN),
    aten.median.dim: _MEDIAN,
    aten.nanmedian.default: partial(of_all, _NANMEDIAN),
    aten.nanmedian.dim: _NANMEDIAN,
    aten.mode.default: mode,
    aten.searchsorted.Tensor: searchsorted,
    aten.searchsorted.Scalar: searchsorted_scalar,
    aten._is_all_true.default: torch.all,
    aten._is_any_true.default: torch.any,
    aten._unique2.default: unique,
    aten.unique_dim.default: unique_dim,
    aten.unique_consecutive.default: unique_consecutive,
    aten.bucketize.Tensor: lambda values, sequence, **options: searchsorted(sequence, values, **options),
    aten.bucketize.Scalar: lambda value, sequence, **options: searchsorted_scalar(sequence, value, **options),
}
