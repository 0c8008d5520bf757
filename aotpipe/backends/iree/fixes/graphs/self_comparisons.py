"""Compares numbers with themselves so that a NaN is seen: `x == x` is how much code looks for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch.fx import GraphModule, Node

from aotpipe.backends.iree.fixes.graphs import GraphRewrite, equal_nodes, modules
from aotpipe.core.fixes import Fix
from aotpipe.passes import ops
from aotpipe.passes.emit import Emitter, rewrite
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
# What holds for each number and itself, but not for a NaN.
_EQUALITIES: Final = ops.overloads("eq.Tensor ge.Tensor le.Tensor")


def keep_nans_unequal(graphs: Sequence[GraphModule]) -> None:
    """Write `not (x != x)` for the comparisons of floats with themselves that hold for numbers."""
    for module in modules(graphs):
        comparisons = [node for node in module.graph.nodes if node.target in _EQUALITIES]
        if comparisons:
            same = equal_nodes(module.graph)
            rewrite(
                module, [node for node in comparisons if len({same[n] for n in _floats(node)}) == 1], _unequal
            )


def _floats(node: Node) -> list[Node]:
    """The operands of a comparison of two tensors of floats; none of another one."""
    operands = [each for each in node.args if isinstance(each, Node)]
    return operands if len(operands) == 2 and value_of(operands[0]).is_floating_point() else []


def _unequal(emit: Emitter, node: Node) -> Node:
    return emit(_ATEN.logical_not.default, emit(_ATEN.ne.Tensor, *node.args))


FIX: Final = Fix(
    id="self-comparisons",
    fault="IREE takes `x == x` for true, also where `x` is NaN",
    remedy="such a comparison becomes `not (x != x)`",
    targets=("iree-*",),
    program="`x == x` of NaN; `x.median(0)`, `x.argmax(0)` and `x.sort(0)` are made of it",
    apply=GraphRewrite(keep_nans_unequal),
)
