"""Takes values without elements out of a program's computation.

The compiler dies on views, products and reductions of a size of 0. What has no elements needs no computing:
`fill(program)` makes a constant of every such value that is not a placeholder.
"""

from __future__ import annotations

from typing import Final

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from aotpipe.passes import hops, ops
from aotpipe.passes.decompositions.entries import static
from aotpipe.passes.emit import Emitter

_ATEN: Final = torch.ops.aten
_CONSTANTS: Final = (_ATEN.full.default, _ATEN.empty.memory_format, _ATEN.arange.start_step)


def fill(program: ExportedProgram) -> ExportedProgram:
    """Give the same program with constants for values without elements; its graph is changed."""
    filled = [_fill(body) for body in list(hops.walk(program.graph_module))]
    return hops.with_graph(program, program.graph_module) if any(filled) else program


def _fill(module: GraphModule) -> bool:
    found = [node for node in module.graph.nodes if _is_empty(node)]
    for node in found:
        value = node.meta["val"]
        emit = Emitter(module, node)
        if value.is_complex():
            # The compiler has no constant of them; their parts are constants by now.
            continue
        constant = emit(_ATEN.empty.memory_format, list(value.shape), dtype=value.dtype, device=value.device)
        node.replace_all_uses_with(constant, propagate_meta=False)
        module.graph.erase_node(node)
    return bool(found)


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
