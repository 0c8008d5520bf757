"""Reads and writes at index tensors: the forms that the compiler lacks, in terms of those that it has."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aotpipe.passes.decompositions.entries import Table

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


def take(tensor: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    flat = tensor.reshape(-1)
    positions = index.reshape(-1)
    wrapped = torch.where(positions < 0, positions + flat.shape[0], positions)
    return flat.index_select(0, wrapped).reshape(index.shape)


DECOMPOSITIONS: Table = {
    aten.take.default: take,
    aten.index.Tensor: index_tensor,
    aten.index_put.default: index_put,
}
