"""Makes the views of one tensor again of another one of the same shape.

A region of a graph takes one operand for all tensors from outside that share their memory, where it writes
any of them: `shared_memory(outer, written)` says of which tensor the others are views, and how each is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotpipe.canonicalize.alias.tensor_storage import layout_of, storage_of
from aotpipe.canonicalize.values.trace import refusal

Replay = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Shared:
    """What a region takes and writes.

    Attributes:
        outer: The tensors that it takes as operands.
        written: Those of them that it writes.
        views: What it makes of operands: a tensor from outside, the operand's own, and how it is made.
    """

    outer: list[torch.Tensor]
    written: list[torch.Tensor]
    views: list[tuple[torch.Tensor, torch.Tensor, Replay]]


def shared_memory(outer: Sequence[torch.Tensor], written: Sequence[torch.Tensor]) -> Shared:
    """One operand for each memory of which a tensor is written, and each other tensor as it is.

    Raises:
        ExportFailed: A tensor that is written shares its memory in another way than torch's views do.
    """
    found = Shared([], [], [])
    targets = {storage_of(tensor) for tensor in written}
    groups: dict[int, list[torch.Tensor]] = {}
    for tensor in outer:
        if storage_of(tensor) in targets:
            groups.setdefault(storage_of(tensor), []).append(tensor)
        else:
            found.outer.append(tensor)
    for group in groups.values():
        base = group[0] if len(group) == 1 else _whole(group)
        found.outer.append(base)
        found.written.append(base)
        for tensor in group:
            if tensor is base:
                continue
            replay = _replay(tensor, base)
            if replay is None:
                raise _refused()
            found.views.append((tensor, base, replay))
    return found


def _whole(group: Iterable[torch.Tensor]) -> torch.Tensor:
    for tensor in group:
        base = tensor if tensor._base is None else tensor._base  # noqa: SLF001  # torch's name for it
        if _is_same(base.numel() * base.element_size(), base.untyped_storage().nbytes()):
            return base
    raise _refused()


def _refused() -> Exception:
    return refusal(
        "a tensor from outside, of which there is a view too, is written in place in a branch or a "
        "loop on a tensor",
        "write to a clone of it, and assign the clone",
        "written-in-place",
    )


def _is_same(one: Any, other: Any) -> bool:
    # Comparing symbols themselves would guard on them.
    return str(one) == str(other)


def _replay(view: torch.Tensor, base: torch.Tensor) -> Replay | None:
    """How a view is made of a base: by an index and a permutation, or of a part without gaps."""
    offset: Any = view.storage_offset() - base.storage_offset()
    if view.dtype != base.dtype or not isinstance(offset, int):
        return None
    if layout_of(view) == layout_of(base):
        return lambda tensor: tensor
    found = _indexed(view, base.shape, base.stride(), offset)
    if found is not None or not base.is_contiguous():
        return found
    flat = _indexed(view, (base.numel(),), (1,), offset)
    if flat is not None:
        return lambda tensor: flat(tensor.view(-1))
    if view.is_contiguous():
        sizes, count = tuple(view.shape), view.numel()
        return lambda tensor: tensor.view(-1).narrow(0, offset, count).view(sizes)
    return None


def _indexed(view: torch.Tensor, sizes: Sequence[Any], strides: Sequence[Any], offset: int) -> Replay | None:
    dims = [dim for dim, size in enumerate(sizes) if not _is_same(size, 1)]
    # A stride that only a run knows is that of an outer dim.
    dims.sort(key=lambda dim: -strides[dim] if isinstance(strides[dim], int) else -math.inf)
    index: list[Any] = [0] * len(sizes)
    for dim in dims:
        if offset and isinstance(strides[dim], int) and strides[dim]:
            index[dim] = offset // strides[dim]
            offset %= strides[dim]
    if offset:
        return None
    order: list[int] = []
    ones: list[int] = []
    for at, (size, stride) in enumerate(zip(view.shape, view.stride(), strict=True)):
        if _is_same(size, 1):
            ones.append(at)
            continue
        found = [each for each in dims if each not in order and _step(stride, strides[each])]
        if not found:
            return None
        dim = found[0]
        start, step = index[dim], _step(stride, strides[dim])
        stop: Any = start + (size - 1) * step + 1
        if step == 1 and not start and _is_same(size, sizes[dim]):
            index[dim] = slice(None)
        elif isinstance(stop, int) and isinstance(sizes[dim], int) and stop <= sizes[dim]:
            index[dim] = slice(start, stop, step)
        else:
            return None
        order.append(dim)
    permutation = [sorted(order).index(dim) for dim in order]

    def replay(tensor: torch.Tensor) -> torch.Tensor:
        found = tensor[tuple(index)].permute(permutation)
        for at in ones:
            found = found.unsqueeze(at)
        return found

    return replay


def _step(stride: Any, of: Any) -> int:
    """How many of another stride a stride is; 0 where that is no whole number, or not known."""
    if _is_same(stride, of):
        return 1
    return stride // of if isinstance(stride, int) and isinstance(of, int) and of and not stride % of else 0
