"""Selecting by rank, searching, the extrema of a dim, and whether all or any of a tensor are true.

An element's rank is counted: how many elements come before it. That is one vectorized, fused reduction,
stable, and with NaN as the greatest value, as eager orders them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import torch

from aotpipe.passes.decompositions.entries import Decomposition, Table, empty, iota, last, reduced

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


def comparable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in a dtype that both compilers compare as eager does."""
    return tensor.to(torch.int32) if tensor.dtype in (torch.bool, torch.uint8) else tensor


def ranks(tensor: torch.Tensor, descending: bool = False) -> torch.Tensor:
    """The place of each element along the last dim of the stable order, as int32."""
    values = comparable(tensor)
    mine, other = values.unsqueeze(-1), values.unsqueeze(-2)
    size = tensor.shape[-1]
    earlier = iota(size, tensor).unsqueeze(-2) < iota(size, tensor).unsqueeze(-1)
    before = _less(mine, other) if descending else _less(other, mine)
    return (before | (_same(other, mine) & earlier)).to(torch.int32).sum(-1, dtype=torch.int32)


def _select(values: torch.Tensor, place: torch.Tensor, k: int | torch.Tensor) -> Pair:
    """The element of rank `k` along the last dim, and its index."""
    chosen = place == k
    zero = torch.zeros((), dtype=values.dtype, device=values.device)
    index = torch.where(chosen, iota(values.shape[-1], values), 0).sum(-1)
    return torch.where(chosen, values, zero).sum(-1, dtype=values.dtype), index


def _of_rank(
    tensor: torch.Tensor,
    dim: int,
    keepdim: bool = False,
    *,
    rank: Callable[[torch.Tensor], int | torch.Tensor],
) -> Pair:
    """The element along `dim` whose rank `rank(values)` gives, and its index."""
    values = last(tensor, dim)
    value, index = _select(values, ranks(values), rank(values))
    return reduced(value, dim, keepdim, tensor), reduced(index, dim, keepdim, tensor)


def kthvalue(tensor: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    return _of_rank(tensor, dim, keepdim, rank=lambda _: k - 1)


def _numbers(values: torch.Tensor) -> torch.Tensor:
    return (values == values).to(torch.int32).sum(-1, keepdim=True, dtype=torch.int32)


def _middle(values: torch.Tensor) -> int | torch.Tensor:
    size = values.shape[-1]
    if not values.is_floating_point():
        return (size - 1) // 2
    # A NaN is the median of whatever holds one; the first NaN has the lowest rank of all NaNs.
    numbers = _numbers(values)
    return torch.where(numbers == size, (size - 1) // 2, numbers)


def _middle_of_numbers(values: torch.Tensor) -> int | torch.Tensor:
    if not values.is_floating_point():
        return _middle(values)
    numbers = _numbers(values)
    return torch.where(numbers == 0, 0, (numbers - 1) // 2)


def of_all(function: Callable[[torch.Tensor, int], Pair]) -> Decomposition:
    """A median over all elements."""

    def decompose(tensor: torch.Tensor) -> torch.Tensor:
        if empty(tensor):
            return torch.full((), float("nan"), dtype=tensor.dtype, device=tensor.device)
        return function(tensor.reshape(-1), 0)[0]

    return decompose


def mode(tensor: torch.Tensor, dim: int = -1, keepdim: bool = False) -> Pair:
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
    # The comparison is negated as in a binary search, so that a NaN comes last.
    beyond = (sequence > compared) if right else (sequence >= compared)
    return (~beyond).to(dtype).sum(-1, dtype=dtype)


_MEDIAN: Final = partial(_of_rank, rank=_middle)
_NANMEDIAN: Final = partial(_of_rank, rank=_middle_of_numbers)
DECOMPOSITIONS: Table = {
    aten.kthvalue.default: kthvalue,
    aten.median.default: of_all(_MEDIAN),
    aten.median.dim: _MEDIAN,
    aten.nanmedian.default: of_all(_NANMEDIAN),
    aten.nanmedian.dim: _NANMEDIAN,
    aten.mode.default: mode,
    aten.searchsorted.Tensor: searchsorted,
    aten.searchsorted.Scalar: searchsorted_scalar,
    aten._is_all_true.default: torch.all,
    aten._is_any_true.default: torch.any,
    aten.bucketize.Tensor: lambda values, sequence, **options: searchsorted(sequence, values, **options),
    aten.bucketize.Scalar: lambda value, sequence, **options: searchsorted_scalar(sequence, value, **options),
}
