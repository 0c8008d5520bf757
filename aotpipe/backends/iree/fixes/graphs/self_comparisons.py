"""Compares numbers with themselves so that a NaN is seen: `x == x` is how much code looks for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from aotpipe.backends.iree.fixes.graphs import GraphRewrite, equal_nodes, modules
from aotpipe.core.fixes import Fix
from aotpipe.passes.emit import Emitter, rewrite
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
# What holds for each number and itself, but not for a NaN, with what remains of it for two different numbers.
_EQUALITIES: Final[Mapping[Any, Any]] = {
    _ATEN.eq.Tensor: None,
    _ATEN.ge.Tensor: _ATEN.gt.Tensor,
    _ATEN.le.Tensor: _ATEN.lt.Tensor,
}


def keep_nans_unequal(graphs: Sequence[GraphModule]) -> None:
    """Write `x == y` of floats as `not (x != y)`: the compiler may find `x` and `y` to be one tensor.

    Where they are made of one tensor, `x >= y` becomes `x > y or not (x != y)`, and `x <= y` the like.
    """
    for module in modules(graphs):
        comparisons = [node for node in module.graph.nodes if node.target in _EQUALITIES]
        if comparisons:
            same = equal_nodes(module.graph)
            rewrite(module, [node for node in comparisons if _may_be_one(node, same)], _unequal)


def _may_be_one(node: Node, same: Mapping[Node, Node]) -> bool:
    """Whether a comparison is one of two tensors of floats that may be one, as `x` and `x.clone()` are."""
    operands = [each for each in node.args if isinstance(each, Node)]
    if len(operands) < 2 or not all(value_of(each).is_floating_point() for each in operands):
        return False
    return node.target is _ATEN.eq.Tensor or len({_origin(each, same) for each in operands}) == 1


def _origin(node: Node, same: Mapping[Node, Node]) -> Node:
    """The tensor that `node` is made of by a chain of ops, each of one tensor, that keep shape and dtype."""
    node = same[node]
    while len(node.all_input_nodes) == 1:
        (operand,) = node.all_input_nodes
        before, after = value_of(operand), value_of(node)
        if not isinstance(before, torch.Tensor) or (before.shape, before.dtype) != (after.shape, after.dtype):
            break
        node = same[operand]
    return node


def _unequal(emit: Emitter, node: Node) -> Node:
    equal = emit(_ATEN.logical_not.default, emit(_ATEN.ne.Tensor, *node.args))
    rest = _EQUALITIES[node.target]
    return equal if rest is None else emit(_ATEN.logical_or.default, emit(rest, *node.args), equal)


FIX: Final = Fix(
    id="self-comparisons",
    fault="IREE takes `x == x`, `x >= x` and `x <= x` for true, also where `x` is NaN",
    remedy="`x == y` of floats becomes `not (x != y)`; of what is made of one tensor `x >= y` becomes "
    "`x > y or not (x != y)`, and `<=` the like",
    targets=("iree-*",),
    program="`x == x` of NaN; `x.median(0)`, `x.argmax(0)` and `x.sort(0)` are made of it",
    apply=GraphRewrite(keep_nans_unequal),
)
