"""Sorting and running extrema.

IREE's own sort is a serial bubble sort, not stable, that knows no NaN. Here an element's rank is counted
(`passes.decompositions.ordering`), which is as many comparisons, but vectorized, in one fused reduction.
"""

from __future__ import annotations

import torch

from aotpipe.passes.decompositions.entries import Table, back, empty, iota, last
from aotpipe.passes.decompositions.ordering import Pair, comparable, ranks

aten = torch.ops.aten


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


def _running(tensor: torch.Tensor, dim: int, largest: bool) -> Pair:
    """The running extremum and the last index that holds it."""
    if not tensor.dim() or empty(tensor):
        return tensor.clone(), torch.zeros_like(tensor, dtype=torch.int64)
    values = last(tensor, dim)
    size = values.shape[-1]
    compared = comparable(values)
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


DECOMPOSITIONS: Table = {
    aten.sort.default: sort,
    aten.sort.stable: sort_stable,
    aten.topk.default: topk,
    aten.cummax.default: cummax,
    aten.cummin.default: cummin,
}
