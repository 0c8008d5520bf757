"""Sums products of broadcast factors one dim at a time.

The compiler fuses a sum over several dims with the product that is summed, and makes a contraction of it that
it then refuses where a factor has one of those dims only by broadcasting (`vector.contract`, IREE 3.13).
`split(program)` sums such a product over its last dim first, then over the others.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from aotpipe.legalize import hops
from aotpipe.legalize.emit import Emitter
from aotpipe.legalize.scalars import value_of

_ATEN: Final = torch.ops.aten
_SUM: Final = _ATEN.sum.dim_IntList


def split(program: ExportedProgram) -> ExportedProgram:
    """Give the same program with two sums in place of such a one; its graph is changed."""
    written = [_split(body) for body in list(hops.walk(program.graph_module))]
    return hops.with_graph(program, program.graph_module) if any(written) else program


def _split(module: GraphModule) -> bool:
    found = [
        node
        for node in module.graph.find_nodes(op="call_function", target=_SUM)
        if len(_dims(node)) > 1 and _misses_one(node)
    ]
    for node in found:
        emit = Emitter(module, node)
        *outer, last = _dims(node)
        keepdim = len(node.args) > 2 and bool(node.args[2])
        inner = emit(_SUM, node.args[0], [last], keepdim, **node.kwargs)
        total = emit(_SUM, inner, outer, keepdim, **node.kwargs)
        node.replace_all_uses_with(total, propagate_meta=False)
        module.graph.erase_node(node)
    return bool(found)


def _dims(node: Node) -> list[int]:
    """The summed dims, in order, counted from the front."""
    rank = value_of(node.args[0]).dim()
    given: Any = node.args[1] if len(node.args) > 1 else None
    # A 0-d tensor has no dim, and takes 0 and -1 for one.
    return sorted(dim % rank for dim in given) if given and rank else list(range(rank))


def _misses_one(node: Node) -> bool:
    """Whether what is summed is a product of which a factor is broadcast along a summed dim."""
    product = node.args[0]
    if not isinstance(product, Node) or product.target is not _ATEN.mul.Tensor:
        return False
    shape = value_of(product).shape
    return any(
        _is_broadcast(factor, shape, dim)
        for factor in product.args
        if isinstance(factor, Node)
        for dim in _dims(node)
    )


def _is_broadcast(factor: Node, shape: torch.Size, dim: int) -> bool:
    while factor.target is _ATEN.expand.default and isinstance(factor.args[0], Node):
        factor = factor.args[0]
    value = value_of(factor)
    if not isinstance(value, torch.Tensor) or not value.dim():
        return False
    own = dim - (len(shape) - value.dim())
    return own < 0 or (_is_one(value.shape[own]) and not _is_one(shape[dim]))


def _is_one(size: object) -> bool:
    return isinstance(size, int) and size == 1
