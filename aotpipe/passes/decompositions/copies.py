"""Copies of views, and tensors whose strides or number of rows are asked for: by the ops that do the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from aotpipe.passes.decompositions.entries import Decomposition, Table, iota, static

aten = torch.ops.aten


def copy_of(view: Decomposition) -> Decomposition:
    def decompose(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        copy: torch.Tensor = view(tensor, *args, **kwargs).clone()
        return copy

    return decompose


def unbind_copy(tensor: torch.Tensor, dim: int = 0) -> list[torch.Tensor]:
    return [part.clone() for part in tensor.unbind(dim)]


def new_empty_strided(
    tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], **options: Any
) -> torch.Tensor:
    return tensor.new_empty(list(size), **{key: value for key, value in options.items() if value is not None})


def nonzero_static(tensor: torch.Tensor, *, size: int, fill_value: int = -1) -> Any:
    """The positions of the first `size` true elements, one row each."""
    if not all(map(static, tensor.shape)):
        return NotImplemented
    if not tensor.dim() or not size or not tensor.numel():
        return torch.full((size, tensor.dim()), fill_value, dtype=torch.int64, device=tensor.device)
    mask = tensor.reshape(-1) != 0
    rank = mask.to(torch.int64).cumsum(0) - 1
    # Elements that are false, or beyond the last row, are written to an extra row that is dropped.
    place = torch.where(mask & (rank < size), rank, size)
    none = torch.full((size + 1,), -1, dtype=torch.int64, device=tensor.device)
    found = none.scatter(0, place, iota(tensor.numel(), tensor))[:size]
    steps = [math.prod(tensor.shape[axis + 1 :]) for axis in range(tensor.dim())]
    rows = [
        torch.div(found, step, rounding_mode="trunc") % extent
        for step, extent in zip(steps, tensor.shape, strict=True)
    ]
    return torch.where(found.unsqueeze(-1) < 0, fill_value, torch.stack(rows, -1))


def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **kwargs: Any) -> torch.Tensor:
    """Strides mean nothing in a graph of values."""
    return torch.empty(list(size), **kwargs)


DECOMPOSITIONS: Table = {
    aten.empty_permuted.default: empty_permuted,
    aten.narrow_copy.default: copy_of(torch.narrow),
    aten.permute_copy.default: copy_of(torch.permute),
    aten.view_copy.default: copy_of(torch.reshape),
    aten.unbind_copy.int: unbind_copy,
    aten.as_strided_copy.default: copy_of(torch.as_strided),
    aten.new_empty_strided.default: new_empty_strided,
    aten.nonzero_static.default: nonzero_static,
}
