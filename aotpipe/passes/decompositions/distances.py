"""Distances between rows, and bags of an embedding: sums over pairs that torch computes in one op."""

from __future__ import annotations

import math

import torch

from aotpipe.passes.decompositions.entries import HALF, Table

aten = torch.ops.aten
Bags = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
_MEAN, _MAX = 1, 2


def _norm(difference: torch.Tensor, p: float) -> torch.Tensor:
    """Of the last dim."""
    size = difference.abs()
    if p == 0:
        return (difference != 0).sum(-1).to(difference.dtype)
    if p == 1:
        return size.sum(-1)
    if p == 2:
        return (difference * difference).sum(-1).sqrt()
    if math.isinf(p):
        return size.amax(-1) if difference.shape[-1] else size.sum(-1)
    return size.pow(p).sum(-1).pow(1 / p)


def cdist(left: torch.Tensor, right: torch.Tensor, p: float, _: int | None = None) -> torch.Tensor:
    return _norm(left.unsqueeze(-2) - right.unsqueeze(-3), p)


def pdist(rows: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    count = rows.shape[0]
    if not isinstance(count, int):
        return NotImplemented
    if count < 2:
        return rows.new_zeros(0)
    return torch.cat([_norm(rows[at : at + 1] - rows[at + 1 :], p) for at in range(count - 1)])


def embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Bags:
    starts = offsets[:-1] if include_last_offset else offsets
    rows = weight.index_select(0, indices)
    rows = rows.float() if rows.dtype in HALF else rows
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    places = torch.arange(indices.shape[0], device=indices.device, dtype=starts.dtype)
    bag = (places.unsqueeze(1) >= starts.unsqueeze(0)).sum(1) - 1
    numbers = torch.arange(starts.shape[0], device=indices.device, dtype=bag.dtype)
    member = bag.unsqueeze(0) == numbers.unsqueeze(1)
    if padding_idx >= 0:
        member = member & (indices != padding_idx).unsqueeze(0)
    counts = member.sum(1)
    if mode == _MAX:
        shown = torch.where(member.unsqueeze(2), rows.unsqueeze(0), -math.inf)
        found = torch.where(counts.unsqueeze(1) > 0, shown.amax(1), 0.0)
    else:
        # Not a product with `member`: an infinite row of another bag would make it NaN.
        found = torch.where(member.unsqueeze(2), rows.unsqueeze(0), 0.0).sum(1)
        found = found / counts.clamp(min=1).unsqueeze(1) if mode == _MEAN else found
    return found.to(weight.dtype), bag, counts, torch.zeros_like(counts)


DECOMPOSITIONS: Table = {
    aten._cdist_forward.default: cdist,
    aten._pdist_forward.default: pdist,
    aten._embedding_bag.default: embedding_bag,
    aten._embedding_bag_forward_only.default: embedding_bag,
}
