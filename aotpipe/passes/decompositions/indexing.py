"""Scatters that reduce, writes by masks and flat positions, repeats and histograms."""

from __future__ import annotations

from typing import Any

import torch

from aotpipe.passes.decompositions.entries import Table, empty, iota

aten = torch.ops.aten


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


DECOMPOSITIONS: Table = {
    aten.masked_scatter.default: masked_scatter,
    aten.put.default: put,
    aten.scatter.reduce: scatter_mode,
    aten.scatter.value_reduce: scatter_value_mode,
    aten.scatter_reduce.two: scatter_reduce,
    aten.index_reduce.default: index_reduce,
    aten.repeat_interleave.Tensor: repeat_interleave,
    aten.histc.default: histc,
}
