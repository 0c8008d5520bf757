"""Writes ops on sizes that the compiler does not take as other ops.

- `fill_empty(module)`: The compiler dies on views, products and reductions of a size of 0. What has no
  elements needs no computing: every such value that is not a placeholder becomes a constant.
- `slice_splits(module)`: The compiler lowers `split_with_sizes` for sizes that it can count; others are
  numbers that an earlier op gives, and the split becomes slices. A slice is cut off at the end of its tensor,
  so that sizes whose assert fails read no other memory.
- `count_strides(module)`: A body of control flow may take a size from a stride of an operand, which no
  compiler tells; of a contiguous operand it is a product of its sizes.
- `bound_sizes(module)`: `abs(n)` of a size is the larger one of it and its negative.
"""

from __future__ import annotations

import operator
from functools import partial, reduce
from itertools import accumulate
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from aotpipe.passes import ops
from aotpipe.passes.decompositions.entries import static
from aotpipe.passes.emit import Emitter, rewrite

_ATEN: Final = torch.ops.aten
_CONSTANTS: Final = ops.overloads("full empty.memory_format arange.start_step")


def fill_empty(module: GraphModule) -> bool:
    """Write constants for the values of a graph without elements; gives whether there was one."""
    return rewrite(module, filter(_is_empty, module.graph.nodes), _empty)


def _empty(emit: Emitter, node: Node) -> Node | None:
    value = node.meta["val"]
    if value.is_complex():
        # The compiler has no complex constants; `complex_parts` made constants of the parts.
        return None
    return emit(_ATEN.empty.memory_format, list(value.shape), dtype=value.dtype, device=value.device)


def _is_empty(node: Node) -> bool:
    value = node.meta.get("val")
    return (
        node.op == "call_function"
        and isinstance(node.target, ops.OpOverload)
        and node.target not in _CONSTANTS
        and isinstance(value, torch.Tensor)
        and all(map(static, value.shape))
        and 0 in value.shape
    )


def slice_splits(module: GraphModule) -> bool:
    """Write slices for the splits of a graph by computed sizes; gives whether there was one."""
    splits = [
        node
        for node in module.graph.find_nodes(op="call_function", target=_ATEN.split_with_sizes.default)
        if any(isinstance(size, Node) for size in node.args[1])
    ]
    for node in splits:
        _slice(module, node)
    return bool(splits)


def _slice(module: GraphModule, split: Node) -> None:
    source, sizes, dim = ops.arguments(split).values()
    # Where each part starts, and the last one ends.
    add: Any = partial(Emitter(module, split), operator.add)
    ends = list(accumulate(sizes, add, initial=0))
    for part in list(split.users):
        assert part.target is operator.getitem
        index: Any = part.args[1]
        with module.graph.inserting_before(part):
            piece = module.graph.call_function(
                _ATEN.slice.Tensor, (source, dim, ends[index], ends[index + 1])
            )
        # The rest of the graph was traced with this shape; evaluated anew, a slice would get one of its own.
        piece.meta = dict(part.meta)
        part.replace_all_uses_with(piece)
        module.graph.erase_node(part)
    module.graph.erase_node(split)


def count_strides(module: GraphModule) -> bool:
    """Write products of sizes for the strides of a graph; gives whether there was one."""
    return rewrite(module, module.graph.find_nodes(op="call_function", target=_ATEN.sym_stride.int), _stride)


def _stride(emit: Emitter, node: Node) -> Node | None:
    source: Any = node.args[0]
    value, dim = source.meta["val"], node.args[1]
    assert isinstance(dim, int)
    inner = [emit(_ATEN.sym_size.int, source, each) for each in range(dim % value.dim() + 1, value.dim())]
    return reduce(partial(emit, operator.mul), inner) if inner and value.is_contiguous() else None


def bound_sizes(module: GraphModule) -> bool:
    """Write the absolute values of a graph's sizes as maxima; gives whether there was one."""
    nodes = [node for node in module.graph.nodes if node.target in (abs, operator.abs)]
    return rewrite(
        module, nodes, lambda emit, node: emit(torch.sym_max, node.args[0], emit(operator.neg, node.args[0]))
    )
