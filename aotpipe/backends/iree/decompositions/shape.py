"""Views, reshapes and padding by a constant."""

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
    is_one = all(one == 1 or not step for one, step in zip(size, stride, strict=True))
    if not tensor.dim() and here and is_one:
        return tensor.expand(list(size)).clone()
    # The compiler dies on a read of one element that has no dim.
    return NotImplemented if size else torch.as_strided(tensor, [1], [1], storage_offset).reshape(())


def empty_strided(size: Sequence[int], stride: Sequence[int], **options: Any) -> torch.Tensor:
    """Strides mean nothing in a graph of values."""
    return torch.empty(list(size), **options)


def squeeze_dims(tensor: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """Several dims at once, which the compiler has no op for."""
    gone = {dim % tensor.dim() for dim in dims} if tensor.dim() else set()
    is_one = [static(size) and size == 1 for size in tensor.shape]
    kept = [size for dim, size in enumerate(tensor.shape) if dim not in gone or not is_one[dim]]
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


def constant_pad(tensor: torch.Tensor, pad: Sequence[int], value: float = 0) -> Any:
    """A negative amount cuts, which the compiler computes wrong."""
    if all(not static(amount) or amount >= 0 for amount in pad):
        if tensor.dtype in (torch.bool, torch.uint8, torch.int8):
            whole = int(bool(value)) if tensor.dtype == torch.bool else int(value)
            grown = torch.constant_pad_nd(tensor.to(torch.int32), list(pad), whole)
            return grown.to(tensor.dtype)
        if value and not tensor.is_floating_point() and not tensor.is_complex():
            # The compiler loses track of the buffer that it fills with an integer before it copies into it.
            return torch.constant_pad_nd(tensor - int(value), list(pad), 0) + int(value)
        return NotImplemented
    # Fill first and cut then: a cut may reach into what the other side is filled with.
    added = [max(amount, 0) if static(amount) else amount for amount in pad]
    filled = not all(static(amount) and amount == 0 for amount in added)
    grown = torch.constant_pad_nd(tensor, added, value) if filled else tensor
    for number in range(len(pad) // 2):
        axis = tensor.dim() - 1 - number
        before, after = (_cut(amount) for amount in pad[2 * number : 2 * number + 2])
        if before or after:
            grown = grown.narrow(axis, before, grown.shape[axis] - before - after)
    return grown.clone()


def _cut(amount: int) -> int:
    return -amount if static(amount) and amount < 0 else 0


DECOMPOSITIONS: Table = {
    aten.as_strided.default: as_strided,
    aten.empty_strided.default: empty_strided,
    aten.squeeze.dims: squeeze_dims,
    aten.view.dtype: view_dtype,
    aten.roll.default: roll,
    aten.constant_pad_nd.default: constant_pad,
}
