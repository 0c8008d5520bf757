"""Gathers and scatters: the forms that the compiler lacks, in terms of those that it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aotpipe.passes.decompositions.entries import Table, empty, iota

aten = torch.ops.aten
Indices = Sequence[torch.Tensor | None]


def _masks(indices: Indices) -> bool:
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)


def _numbers(indices: Indices) -> list[torch.Tensor | None]:
    """Boolean masks as the index tensors of their true elements."""
    numbers: list[torch.Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            numbers += list(index.to(torch.bool).nonzero().unbind(1))
        else:
            numbers.append(index)
    return numbers


def index_tensor(tensor: torch.Tensor, indices: Indices) -> torch.Tensor:
    if _masks(indices):
        return aten.index.Tensor(tensor, _numbers(indices))
    return NotImplemented


def index_put(
    tensor: torch.Tensor, indices: Indices, values: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    if values.dtype != tensor.dtype:
        values = values.to(tensor.dtype)
        return aten.index_put.default(tensor, indices, values, accumulate)
    mask = _one_mask(indices)
    if mask is not None:
        return _masked_put(tensor, mask, len(indices), values, accumulate)
    if _masks(indices):
        return aten.index_put.default(tensor, _numbers(indices), values, accumulate)
    if tensor.dtype == torch.bool:
        # A scatter of single bits is not compiled right.
        wide = aten.index_put.default(tensor.to(torch.int32), indices, values.to(torch.int32), accumulate)
        return wide != 0
    if all(index is None or not index.dim() for index in indices):
        return _put_one(tensor, indices, values, accumulate)
    return NotImplemented


def _put_one(tensor: torch.Tensor, indices: Indices, values: torch.Tensor, accumulate: bool) -> torch.Tensor:
    """A write at 0-d indices, which the compiler dies on, as one at indices of one element."""
    given = [dim for dim, index in enumerate(indices) if index is not None]
    rank = tensor.dim() - len(given)
    adjacent = given == list(range(given[0], given[-1] + 1))
    values = values.reshape([1] * (rank - values.dim()) + list(values.shape))
    longer = [None if index is None else index.reshape(1) for index in indices]
    place = given[0] if adjacent else 0
    return aten.index_put.default(tensor, longer, values.unsqueeze(place), accumulate)


def _one_mask(indices: Indices) -> torch.Tensor | None:
    """The mask, where a leading mask is all there is."""
    given = [index for index in indices if index is not None]
    if len(given) == 1 and given[0].dtype in (torch.bool, torch.uint8) and indices[0] is not None:
        return given[0].to(torch.bool)
    return None


def _masked_put(
    tensor: torch.Tensor, mask: torch.Tensor, count: int, values: torch.Tensor, accumulate: bool
) -> torch.Tensor:
    rest = tensor.dim() - mask.dim()
    wide = mask.reshape(*mask.shape, *([1] * rest))
    if values.dim() <= rest or (values.dim() == rest + 1 and values.shape[0] == 1):
        # One row for all: no need to count the true elements.
        row = values.reshape(values.shape[1:]) if values.dim() > rest else values
        new = row.expand(tensor.shape)
    else:
        flat = mask.reshape(-1)
        place = (flat.to(torch.int64).cumsum(0) - 1).clamp(min=0)
        rows = values.expand(values.shape[0], *tensor.shape[mask.dim() :])
        new = rows.index_select(0, place).reshape(tensor.shape)
    return torch.where(wide, tensor + new if accumulate else new, tensor)


def masked_scatter(tensor: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    tensor, mask = torch.broadcast_tensors(tensor, mask)
    if empty(tensor, source):
        return tensor.clone()
    place = (mask.reshape(-1).to(torch.int64).cumsum(0) - 1).clamp(min=0)
    # The place of an element past the source's end can only be that of an unmasked one.
    place = place.clamp(max=source.numel() - 1)
    return torch.where(mask, source.reshape(-1).index_select(0, place).reshape(tensor.shape), tensor)


def put(
    tensor: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    if empty(tensor, index):
        return tensor.clone()
    place = index.reshape(-1)
    place = torch.where(place < 0, place + tensor.numel(), place)
    flat = aten.index_put.default(tensor.reshape(-1), [place], source.reshape(-1), accumulate)
    return flat.reshape(tensor.shape)


def scatter_reduce(
    tensor: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    src: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> torch.Tensor:
    """`out[p] = reduce(tensor[p] if include_self, src[q] for every q with index[q] == p)`.

    By a mask of all pairs.

    The compiler scatters sums only; every pair is compared here, in one fused reduction.
    """
    if not tensor.dim():
        tensor1, index1, src1 = tensor.reshape(1), index.reshape(-1), src.reshape(-1)
        return scatter_reduce(tensor1, 0, index1, src1, reduce, include_self=include_self).reshape(())
    if empty(tensor, index):
        return tensor.clone()
    if index.dim() == 0:
        index, src = index.reshape(1), src.reshape(1)
    dim %= tensor.dim()
    # (..., target, source): the other dims of tensor may be longer than those of index.
    cut = src[tuple(slice(0, size) for size in index.shape)].movedim(dim, -1).unsqueeze(-2)
    where = index.movedim(dim, -1).unsqueeze(-2)
    targets = iota(tensor.shape[dim], tensor).unsqueeze(-1)
    hit = where == targets
    target = tensor.movedim(dim, -1)
    region = target[tuple(slice(0, size) for size in hit.shape[:-2])]
    new = _reduce_pairs(hit, cut, region, reduce, include_self)
    return _placed(target, new).movedim(-1, dim)


def _placed(target: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """The target with its leading corner replaced."""
    for axis in range(target.dim() - 1):
        if new.shape[axis] != target.shape[axis]:
            corner = [slice(0, size) for size in new.shape]
            corner[axis] = slice(new.shape[axis], target.shape[axis])
            tail = target[tuple(corner)]
            new = torch.cat([new, tail], axis)
    return new


_UNITS: dict[str, float] = {"sum": 0, "mean": 0, "prod": 1, "amax": -torch.inf, "amin": torch.inf}


def _reduce_pairs(
    hit: torch.Tensor, source: torch.Tensor, target: torch.Tensor, reduce: str, include_self: bool
) -> torch.Tensor:
    dtype = target.dtype
    unit: Any = _UNITS[reduce]
    if not dtype.is_floating_point and abs(unit) == torch.inf:
        info = torch.iinfo(torch.int32 if dtype == torch.bool else dtype)
        unit = info.max if unit > 0 else info.min
    work = (
        torch.int32
        if dtype == torch.bool
        else torch.float32
        if dtype in (torch.float16, torch.bfloat16)
        else dtype
    )
    filler = torch.full((), unit, dtype=work, device=target.device)
    pairs = torch.where(hit, source.to(work), filler)
    mine = target.to(work)
    count = hit.to(torch.int64).sum(-1)
    kept = mine if include_self else torch.where(count > 0, filler, mine)
    match reduce:
        case "sum" | "mean":
            new = kept + pairs.sum(-1, dtype=work)
        case "prod":
            new = kept * pairs.prod(-1, dtype=work)
        case "amax":
            new = torch.maximum(kept, pairs.amax(-1))
        case _:
            new = torch.minimum(kept, pairs.amin(-1))
    if reduce == "mean":
        share = (count + int(include_self)).clamp(min=1)
        new = new / share if work.is_floating_point else torch.div(new, share, rounding_mode="floor").to(work)
    return torch.where(count > 0, new, mine).to(dtype)


def index_reduce(
    tensor: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> torch.Tensor:
    if not tensor.dim():
        new = index_reduce(
            tensor.reshape(1), 0, index.reshape(-1), source.reshape(1), reduce, include_self=include_self
        )
        return new.reshape(())
    shape = [1] * tensor.dim()
    shape[dim] = -1
    wide = index.reshape(shape).expand(source.shape)
    return scatter_reduce(tensor, dim, wide, source, reduce, include_self=include_self)


def scatter_mode(
    tensor: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, *, reduce: str
) -> torch.Tensor:
    mode = {"add": "sum", "multiply": "prod"}[reduce]
    return scatter_reduce(tensor, dim, index, src, mode)


def scatter_value_mode(
    tensor: torch.Tensor, dim: int, index: torch.Tensor, value: float, *, reduce: str
) -> torch.Tensor:
    source = torch.full(index.shape, value, dtype=tensor.dtype, device=tensor.device)
    return scatter_mode(tensor, dim, index, source, reduce=reduce)


def repeat_interleave(repeats: torch.Tensor, *, output_size: int | None = None) -> torch.Tensor:
    ends = repeats.to(torch.int64).cumsum(0)
    size: Any = output_size
    if size is None:
        size = ends[-1].item()
        torch._check(size >= 0)
    positions = torch.arange(size, device=repeats.device)
    return torch.searchsorted(ends, positions, right=True).to(repeats.dtype)


def histc(tensor: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    values = tensor.reshape(-1)
    low = torch.full((), min, dtype=tensor.dtype, device=tensor.device)
    high = torch.full((), max, dtype=tensor.dtype, device=tensor.device)
    if min == max:
        if empty(tensor):
            return torch.zeros(bins, dtype=tensor.dtype, device=tensor.device)
        low, high = values.amin(), values.amax()
        flat = low == high
        low, high = torch.where(flat, low - 1, low), torch.where(flat, high + 1, high)
    if empty(tensor):
        return torch.zeros(bins, dtype=tensor.dtype, device=tensor.device)
    place = ((values - low) / (high - low) * bins).to(torch.int64).clamp(max=bins - 1)
    hit = (place.unsqueeze(0) == iota(bins, tensor).unsqueeze(1)) & (values >= low) & (values <= high)
    return hit.to(tensor.dtype).sum(-1)


def take(tensor: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    flat = tensor.reshape(-1)
    positions = index.reshape(-1)
    wrapped = torch.where(positions < 0, positions + flat.shape[0], positions)
    return flat.index_select(0, wrapped).reshape(index.shape)


DECOMPOSITIONS: Table = {
    aten.take.default: take,
    aten.index.Tensor: index_tensor,
    aten.index_put.default: index_put,
    aten.masked_scatter.default: masked_scatter,
    aten.put.default: put,
    aten.scatter.reduce: scatter_mode,
    aten.scatter.value_reduce: scatter_value_mode,
    aten.scatter_reduce.two: scatter_reduce,
    aten.index_reduce.default: index_reduce,
    aten.repeat_interleave.Tensor: repeat_interleave,
    aten.histc.default: histc,
}
