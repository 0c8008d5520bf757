"""How the results of a graph lie in memory: whoever takes them may rely on it.

AOTAutograd makes views of results by their strides, and the code after a graph may write into a result of
which another one is a view. `layouts(graph)` reads that off a graph as it was traced; `placed(layouts,
tensors)` gives the tensors of a program the same.

Raises:
    UnsupportedOps: Results share memory in a way that varies with the sizes of a call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef  # torch's own way to tell storages apart

from aotpipe.errors import UnsupportedOps


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One result's.

    Attributes:
        is_number: Whether it is a size or another number, not a tensor.
        order: The order of its dims in memory, the slowest first; None where that is their own.
        strides: Where they are known and leave gaps, or the memory is shared.
        memory: The number of the memory that it shares with other results; None where it has its own.
        offset: Where it begins there, in elements.
    """

    is_number: bool = False
    order: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    memory: int | None = None
    offset: int = 0


def layouts(graph: fx.GraphModule) -> tuple[Layout, ...]:
    """The layout of each result, in order."""
    [output] = (node for node in graph.graph.nodes if node.op == "output")
    values = [leaf.meta.get("val") if isinstance(leaf, fx.Node) else None for leaf in output.args[0]]
    memories = [
        StorageWeakRef(value.untyped_storage())  # type: ignore[no-untyped-call]
        if isinstance(value, torch.Tensor)
        else None
        for value in values
    ]
    uses = Counter(each for each in memories if each is not None)
    shared = {each: number for number, each in enumerate(each for each, count in uses.items() if count > 1)}
    return tuple(
        _layout(value, shared.get(memory) if memory is not None else None)
        for value, memory in zip(values, memories, strict=True)
    )


def _layout(value: Any, memory: int | None) -> Layout:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return Layout(is_number=True)
    if not isinstance(value, torch.Tensor):
        return Layout()
    given: Sequence[Any] = value.stride()
    known = all(type(each) is int for each in given)
    if memory is not None:
        offset: Any = value.storage_offset()
        if not known or type(offset) is not int:
            raise UnsupportedOps(
                "two results share memory, as their sizes have it",
                hint="clone one of them, or compile it with dynamic=False",
            )
        return Layout(strides=tuple(given), memory=memory, offset=offset)
    if value.is_contiguous():
        return Layout()
    hints = [each.node.hint if isinstance(each, torch.SymInt) else each for each in given]
    order = tuple(sorted(range(value.dim()), key=lambda axis: -hints[axis]))
    found = Layout(order=None if order == tuple(range(value.dim())) else order)
    # An expanded result has no memory of its own to write to.
    return replace(found, strides=tuple(given)) if known and all(hints) else found


def placed(wanted: Sequence[Layout], tensors: Sequence[Any]) -> list[Any]:
    """Each of a program's results in its layout."""
    rooms: dict[int, torch.Tensor] = {}
    for layout, tensor in zip(wanted, tensors, strict=True):
        if layout.memory is not None:
            assert layout.strides is not None
            end = (
                1
                + layout.offset
                + sum((size - 1) * stride for size, stride in zip(tensor.shape, layout.strides, strict=True))
            )
            room = rooms.get(layout.memory)
            if room is None or room.numel() < end:
                rooms[layout.memory] = tensor.new_empty(max(end, 0))
    return [_placed(layout, tensor, rooms) for layout, tensor in zip(wanted, tensors, strict=True)]


def _placed(layout: Layout, tensor: Any, rooms: dict[int, torch.Tensor]) -> Any:
    if layout.is_number:
        return tensor.item()
    if layout.memory is not None and tensor.numel():
        assert layout.strides is not None
        return rooms[layout.memory].as_strided(tensor.shape, layout.strides, layout.offset).copy_(tensor)
    if layout.strides is not None:
        return torch.empty_strided(tensor.shape, layout.strides, dtype=tensor.dtype).copy_(tensor)
    if layout.order is not None:
        return torch.empty_permuted(tensor.shape, layout.order, dtype=tensor.dtype).copy_(tensor)
    return tensor
