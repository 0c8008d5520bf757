"""Writes splits by sizes that are data as slices.

The compiler lowers `split_with_sizes` for sizes that it can count; others are numbers that an earlier op
gives. A slice is cut off at the end of its tensor, so that sizes whose assert fails read no other memory.
"""

from __future__ import annotations

import operator
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from aotpipe.passes import hops
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten


def write_out(program: ExportedProgram) -> ExportedProgram:
    """Give the same program with slices in place of such splits; its graph is changed."""
    written = [_write_out(body) for body in list(hops.walk(program.graph_module))]
    return hops.with_graph(program, program.graph_module) if any(written) else program


def _write_out(module: GraphModule) -> bool:
    splits = [
        node
        for node in module.graph.find_nodes(op="call_function", target=_ATEN.split_with_sizes.default)
        if any(isinstance(size, Node) for size in node.args[1])
    ]
    for node in splits:
        _slice(module, node)
    return bool(splits)


def _slice(module: GraphModule, split: Node) -> None:
    source, sizes, dim = (*split.args, *(split.kwargs.get("dim", 0),))[:3]
    ends = _ends(module, split, sizes)
    for part in list(split.users):
        assert part.target is operator.getitem
        index: Any = part.args[1]
        with module.graph.inserting_before(part):
            piece = module.graph.call_function(
                _ATEN.slice.Tensor, (source, dim, ends[index], ends[index + 1])
            )
        # The rest of the graph was traced with this shape; evaluated anew, a slice would get one of its own.
        piece.meta = dict(part.meta)
        part.replace_all_uses_with(piece, propagate_meta=False)
        module.graph.erase_node(part)
    module.graph.erase_node(split)


def _ends(module: GraphModule, split: Node, sizes: Any) -> list[Any]:
    """Where each part starts, and the last one ends."""
    ends: list[Any] = [0]
    for size in sizes:
        with module.graph.inserting_before(split):
            end = module.graph.call_function(operator.add, (ends[-1], size))
        end.meta["val"] = value_of(ends[-1]) + value_of(size)
        ends.append(end)
    return ends
