"""Padding by a constant: a negative amount cuts, which the compiler computes wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aotpipe.passes.decompositions.entries import Table, static

aten = torch.ops.aten


def constant_pad(tensor: torch.Tensor, pad: Sequence[int], value: float = 0) -> Any:
    if all(not static(amount) or amount >= 0 for amount in pad):
        if tensor.dtype in (torch.bool, torch.uint8, torch.int8):
            grown = torch.constant_pad_nd(tensor.to(torch.int32), list(pad), _as(value, tensor.dtype))
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


def _as(value: float, dtype: torch.dtype) -> int:
    return int(bool(value)) if dtype == torch.bool else int(value)


def _cut(amount: int) -> int:
    return -amount if static(amount) and amount < 0 else 0


DECOMPOSITIONS: Table = {aten.constant_pad_nd.default: constant_pad}
