"""Views and reshapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aotpipe.passes.decompositions.entries import Table, static

aten = torch.ops.aten


def as_strided(
    tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:
    here = storage_offset is None or storage_offset == tensor.storage_offset()
    if (
        not tensor.dim()
        and here
        and all(one == 1 or not step for one, step in zip(size, stride, strict=True))
    ):
        return tensor.expand(list(size)).clone()
    # The compiler dies on a read of one element that has no dim.
    return NotImplemented if size else torch.as_strided(tensor, [1], [1], storage_offset).reshape(())


def empty_strided(size: Sequence[int], stride: Sequence[int], **options: Any) -> torch.Tensor:
    """Strides mean nothing in a graph of values."""
    return torch.empty(list(size), **options)


def squeeze_dims(tensor: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """Several dims at once, which the compiler has no op for."""
    gone = {dim % tensor.dim() for dim in dims} if tensor.dim() else set()
    kept = [size for dim, size in enumerate(tensor.shape) if dim not in gone or not _is_one(size)]
    return tensor.reshape(kept)


def view_dtype(tensor: torch.Tensor, dtype: torch.dtype) -> Any:
    # The compiler dies on the bits of a 0-d tensor.
    return NotImplemented if tensor.dim() else tensor.reshape(1).view(dtype).reshape(())


def roll(tensor: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> torch.Tensor:
    """The two parts of each dim, swapped."""
    if not dims:
        return roll(tensor.reshape(-1), shifts, (0,)).reshape(tensor.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = tensor.shape[dim]
        if static(size) and (size == 0 or shift % size == 0):
            continue
        start = (size - shift) % size
        parts = (tensor.narrow(dim, start, size - start), tensor.narrow(dim, 0, start))
        tensor = torch.cat(parts, dim)
    return tensor.clone()


def _is_one(size: int) -> bool:
    return static(size) and size == 1


DECOMPOSITIONS: Table = {
    aten.as_strided.default: as_strided,
    aten.empty_strided.default: empty_strided,
    aten.squeeze.dims: squeeze_dims,
    aten.view.dtype: view_dtype,
    aten.roll.default: roll,
}
