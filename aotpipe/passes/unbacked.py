"""The sizes of a graph that only a run knows, and the range of each.

`sizes(module)` has an entry for each symbol that a `nonzero`, a `slice` or an `item` brings up and that
shapes are made of. A `nonzero` finds at most as many places as its operand has elements, and a `slice` has at
most the operand's size; an `item` is bounded by what the model says of it (`torch._check(n <= 64)`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sympy
import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from aotpipe.passes import hops, ops
from aotpipe.passes.scalars import value_of

NONZERO: Final = torch.ops.aten.nonzero.default
SLICE: Final = torch.ops.aten.slice.Tensor
# torch.export writes "no upper bound" as a number of about this size or larger.
_ENDLESS: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class DataSize:
    """The range of a size: `most` may be an expression of others, and is None where nothing bounds it."""

    least: int
    most: Any


def sizes(module: GraphModule) -> dict[sympy.Symbol, DataSize]:
    """The range of each size of a graph and its subgraphs that only a run knows."""
    nodes = [node for graph in hops.walk(module) for node in graph.graph.nodes]
    used = {symbol for node in nodes for symbol in used_by(node)}
    named = ((symbol_of(node), node) for node in nodes)
    return {symbol: _range(node) for symbol, node in named if symbol is not None and symbol in used}


def symbol_of(node: Node) -> sympy.Symbol | None:
    """The symbol of the size that a node finds out; None where it finds out none."""
    value = node.meta.get("val")
    if node.target in (NONZERO, SLICE):
        value = value_of(node).shape[0 if node.target is NONZERO else ops.arguments(node)["dim"]]
    elif node.target is not ops.ITEM:
        return None
    if not isinstance(value, torch.SymInt) or not free_unbacked_symbols(value):
        return None
    expr = value.node.expr
    return expr if expr.is_Symbol else None


def used_by(node: Node) -> set[sympy.Symbol]:
    """The symbols of the shapes of a node's tensors that only a run knows."""
    # Not those of strides and offsets, which no program has.
    sizes = (size for tensor in ops.tensors(node) for size in tensor.shape)
    return {symbol for size in sizes for symbol in free_unbacked_symbols(size)}


def _range(node: Node) -> DataSize:
    if node.target in (NONZERO, SLICE):
        operand = value_of(node.args[0])
        count = operand.numel() if node.target is NONZERO else operand.shape[ops.arguments(node)["dim"]]
        return DataSize(0, count.node.expr if isinstance(count, torch.SymInt) else sympy.Integer(count))
    size = node.meta["val"].node
    bounds = size.shape_env.bound_sympy(size.expr)
    low = int(bounds.lower) if bounds.lower.is_Integer else 0
    high = bounds.upper if bounds.upper.is_Integer and bounds.upper < _ENDLESS else None
    return DataSize(max(low, 0), high)
