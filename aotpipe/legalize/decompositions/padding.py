"""Padding by a constant: a negative amount cuts, which the compiler computes wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aotpipe.legalize.decompositions.entries import Table, static

aten = torch.ops.aten


def constant_pad(tensor: torch.Tensor, pad: Sequence[int], value: float = 0) -> Any:
    if all(not static(amount) or amount >= 0 for amount in pad):
        if tensor.dtype == torch.bool:
            return torch.constant_pad_nd(tensor.to(torch.int32), list(pad), int(bool(value))) != 0
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


DECOMPOSITIONS: Table = {aten.constant_pad_nd.default: constant_pad}
