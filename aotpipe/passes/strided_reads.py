"""Writes reads by strides as gathers, since the values of a compiled program have no strides.

`as_strided` reads the memory of its operand, which may be a part of that memory in another order.
`gather(module)` finds the tensor that owns the memory and reads its elements, in the order that eager has
them in, at the places that the strides name. A read of an input that is not contiguous in the example stays,
and is refused: a program takes contiguous tensors, in which eager would read other elements.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from aotpipe.passes import alias_copies, ops
from aotpipe.passes.decompositions.entries import static
from aotpipe.passes.emit import Emitter, rewrite
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten


def gather(module: GraphModule) -> bool:
    """Write gathers for the reads of a graph by strides; gives whether there was one."""
    # From the last on, so that a read of a read still finds the owner of its memory.
    found = module.graph.find_nodes(op="call_function", target=_ATEN.as_strided.default)
    return rewrite(module, reversed(list(found)), _gathered)


def _gathered(emit: Emitter, node: Node) -> Node | None:
    source, size, stride, offset = ops.arguments(node).values()
    base = alias_copies.owner(node)
    memory, result = value_of(base), value_of(node)
    start = value_of(source).storage_offset() if offset is None else offset
    order = _order(memory)
    if (
        order is None
        or memory.dtype != result.dtype
        or not all(map(static, (start, *stride)))
        or free_unbacked_symbols(result)
        or (base.op == "placeholder" and not memory.is_contiguous())
    ):
        return None
    start -= memory.storage_offset()
    if all(map(static, (*size, *memory.shape))) and math.prod(size):
        last = start + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
        if start < 0 or last >= memory.numel():
            return None
    places: Any = emit(_ATEN.full.default, [1] * len(size), start, dtype=torch.int64, device=memory.device)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        along = emit(_ATEN.arange.start_step, 0, count, dtype=torch.int64, device=memory.device)
        along = emit(_ATEN.view.default, along, [-1 if at == axis else 1 for at in range(len(size))])
        places = emit(_ATEN.add.Tensor, places, emit(_ATEN.mul.Tensor, along, step))
    flat = base if order == sorted(order) else emit(_ATEN.permute.default, base, order)
    flat = emit(_ATEN.view.default, flat, [-1])
    read = emit(_ATEN.index_select.default, flat, 0, emit(_ATEN.view.default, places, [-1]))
    read = emit(_ATEN.view.default, read, list(size))
    # The rest of the graph was traced with this shape.
    read.meta["val"] = result
    return read


def _order(memory: torch.Tensor) -> list[int] | None:
    """The dims from the longest stride to the shortest, where a tensor lies dense in this order."""
    if memory.is_contiguous():
        return list(range(memory.dim()))
    if not all(map(static, (*memory.shape, *memory.stride()))):
        return None
    order = sorted(range(memory.dim()), key=memory.stride, reverse=True)
    return order if memory.permute(order).is_contiguous() else None
