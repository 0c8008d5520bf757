"""Writes those of torch's `prims` as ATen's ops that no backend has.

Among them are the views: torch functionalizes no op of another library that gives a view of its operand.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from aotpipe.passes import hops, ops
from aotpipe.passes.emit import Emitter, rewrite

_ATEN: Final = torch.ops.aten
_PRIMS: Final = torch.ops.prims


def _product(emit: Emitter, inp: Node, dims: Sequence[int], **_: object) -> Node:
    found = emit(_ATEN.clone.default, inp)
    for dim in sorted(dims, reverse=True):
        found = emit(_ATEN.prod.dim_int, found, dim, dtype=inp.meta["val"].dtype)
    return found


_FORMS: Final[Mapping[Any, Callable[..., Any]]] = {
    _PRIMS.view_of.default: lambda emit, a: emit(_ATEN.alias.default, a),
    _PRIMS.squeeze.default: lambda emit, a, dimensions: emit(_ATEN.squeeze.dims, a, dimensions),
    _PRIMS.transpose.default: lambda emit, a, permutation: emit(_ATEN.permute.default, a, permutation),
    _PRIMS.split_dim.default: lambda emit, a, dim, outer_length: emit(
        _ATEN.unflatten.int, a, dim, [outer_length, -1]
    ),
    _PRIMS.prod.default: _product,
    _PRIMS.collapse_view.default: lambda emit, a, start, end: emit(_ATEN.flatten.using_ints, a, start, end),
}


def as_aten(program: ExportedProgram) -> ExportedProgram:
    """Give the same program with ATen's ops, or the program itself where it has none of the others."""
    bodies = hops.walk(program.graph_module)
    if not any(node.target in _FORMS for body in bodies for node in body.graph.nodes):
        return program
    module = copy.deepcopy(program.graph_module)
    for body in hops.walk(module):
        rewrite(body, (node for node in body.graph.nodes if node.target in _FORMS), _written)
        body.recompile()
    return hops.with_graph(program, module)


def _written(emit: Emitter, node: Node) -> Node:
    written: Node = _FORMS[node.target](emit, **ops.arguments(node))
    return written
