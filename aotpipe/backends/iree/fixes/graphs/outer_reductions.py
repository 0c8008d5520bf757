"""Gives a reduction that is broadcast along two dims at once a buffer of its own."""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from torch.fx import Graph, Node

from aotpipe.backends.iree.fixes.graphs import GraphRewrite, equal_nodes
from aotpipe.backends.iree.fixes.graphs.broadcast_reductions import REDUCTIONS
from aotpipe.core.fixes import Fix
from aotpipe.passes import ops
from aotpipe.passes.decompositions.entries import is_one
from aotpipe.passes.scalars import value_of

_Dims = tuple[int, ...]
"""Where the dims of a reduction lie in a tensor that is computed of it, counted from the last."""
_UNKNOWN: Final[_Dims] = ()
_Placed = dict[Node, set[_Dims]]
_FOUND: Final[WeakKeyDictionary[Graph, dict[Node, _Placed]]] = WeakKeyDictionary()
_KEPT: Final = ops.overloads("clone alias _to_copy expand")


def own_buffers(node: Node) -> tuple[Node, ...]:
    """The smallest operand of an elementwise op that takes one reduction along several dims."""
    if not _is_pointwise(node) or len(operands := _tensors(node)) < 2:
        return ()
    if node.graph not in _FOUND:
        _FOUND[node.graph] = _all_placed(node.graph)
    placed = _FOUND[node.graph]
    # Where nothing is broadcast, as in `s + s.T`, the numbers are right.
    repeated = {
        reduction for reduction, places in placed[node].items() if _broadcast(len(_wide(node)), places)
    }
    holders = [operand for operand in operands if repeated & placed[operand].keys()]
    return (min(holders, key=lambda operand: len(_wide(operand))),) if len(holders) > 1 else ()


def _broadcast(rank: int, places: set[_Dims]) -> bool:
    return len(places) > 1 and any(len(dims) < rank for dims in places)


def _all_placed(graph: Graph) -> dict[Node, _Placed]:
    """For each node the reductions that the compiler may compute where it computes the node."""
    same = equal_nodes(graph)
    found: dict[Node, _Placed] = {}
    for node in graph.nodes:
        found[node] = {}
        if node.target in REDUCTIONS:
            found[node] = {same[node]: {tuple(_wide(node))}}
        elif _is_pointwise(node) or node.target in _KEPT or node.target in ops.REARRANGES:
            for operand in _tensors(node):
                for reduction, places in found[operand].items():
                    moved = {_moved(node, operand, dims) for dims in places}
                    found[node].setdefault(reduction, set()).update(moved)
    return found


def _moved(node: Node, operand: Node, dims: _Dims) -> _Dims:
    """Where in `node` the dims lie that lie at `dims` in its operand."""
    if node.target is torch.ops.aten.permute.default:
        order: Any = ops.arguments(node)["dims"]
        rank = len(order)
        to = {old % rank - rank: new - rank for new, old in enumerate(order)}
    elif node.target in ops.REARRANGES and node.target not in _KEPT:
        before, after = _wide(operand), _wide(node)
        if len(before) != len(after):
            return _UNKNOWN
        to = dict(zip(before, after, strict=True))
    else:
        return dims
    return tuple(to.get(dim, 0) for dim in dims)


def _is_pointwise(node: Node) -> bool:
    return torch.Tag.pointwise in getattr(node.target, "tags", ())


def _tensors(node: Node) -> list[Node]:
    return [each for each in node.all_input_nodes if isinstance(value_of(each), torch.Tensor)]


def _wide(node: Node) -> list[int]:
    """The dims of more than one element, counted from the last."""
    shape = value_of(node).shape
    return [dim - len(shape) for dim, size in enumerate(shape) if not is_one(size)]


FIX: Final = Fix(
    id="outer-reductions",
    fault="IREE computes a reduction within the elementwise op that broadcasts it along two dims at once, "
    "and gives zeros off the diagonal",
    remedy="one of the operands gets a buffer of its own",
    targets=("iree-cpu-*",),
    program="`s[:, None] + s[None, :]` of `s = x.sum(-1)`",
    apply=GraphRewrite(own_buffers=own_buffers),
)
