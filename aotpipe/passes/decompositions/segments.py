"""Reductions of the segments of a dim, which lengths or offsets name (`native/SegmentReduce.cpp`)."""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor

from aotpipe.passes import ops
from aotpipe.passes.decompositions.entries import Table, empty, iota, wide

aten = torch.ops.aten

_UNITS: Final = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Any:
    """Every element is compared with the ends of every segment, in one fused reduction."""
    axis = axis % data.dim()
    if indices is not None or (lengths is None and offsets is None):
        return NotImplemented
    dtype = data.dtype
    ends, begins = _borders(data, lengths, offsets, axis, checked=not unsafe)
    # (outer..., segments, elements, 1...)
    place = iota(data.shape[axis], data)
    hit = (place >= begins.unsqueeze(-1)) & (place < ends.unsqueeze(-1))
    hit = hit.reshape(*hit.shape, *[1] * (data.dim() - axis - 1))
    unit = _UNITS[reduce]
    work = wide(dtype)
    start = torch.full((), unit if initial is None else initial, dtype=work, device=data.device)
    count = (ends - begins).reshape(*ends.shape, *[1] * (data.dim() - axis - 1)).to(work)
    shape = (*ends.shape, *data.shape[axis + 1 :])
    if empty(data):
        found = start.expand(shape)
    else:
        # A filler as a number would be of float64.
        filler = torch.full((), unit, dtype=work, device=data.device)
        found = _reduced(torch.where(hit, data.to(work).unsqueeze(axis), filler), start, reduce, axis + 1)
    if reduce == "mean":
        mean = found / torch.where(count > 0, count, 1)
        found = torch.where(count > 0, mean, math.nan if initial is None else start)
    return found.to(dtype)


def _borders(
    data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int, *, checked: bool
) -> tuple[Tensor, Tensor]:
    """The first place behind each segment, and the first of it."""
    if lengths is None:
        assert offsets is not None
        return offsets[..., 1:].to(torch.int64), offsets[..., :-1].to(torch.int64)
    lengths = lengths.to(torch.int64)
    ends = lengths.cumsum(-1)
    if checked and not empty(lengths):
        whole = (lengths >= 0).all() & (lengths.sum(-1) == data.shape[axis]).all()
        ops.ASSERT_TENSOR(whole, "segment_reduce: the lengths are not those of the whole dim")
    return ends, ends - lengths


def _reduced(picked: Tensor, start: Tensor, reduce: str, dim: int) -> Tensor:
    match reduce:
        case "max":
            return torch.maximum(picked.amax(dim), start)
        case "min":
            return torch.minimum(picked.amin(dim), start)
        case "prod":
            return picked.prod(dim) * start
        case _:
            return picked.sum(dim) + start


DECOMPOSITIONS: Table = {aten.segment_reduce.default: segment_reduce}
