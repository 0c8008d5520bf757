"""Writes a gather at several index tensors whose sizes vary as one at a single index tensor.

The compiler takes `t[a, b]` where it knows how many indices there are. Else the dims that are indexed become
one, and the indices a place in it. To be called where every index is in range, and none is negative.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from aotpipe.core.stages import LegalEntry
from aotpipe.passes import hops
from aotpipe.passes.emit import Emitter
from aotpipe.passes.ranges import Ranges

_ATEN: Final = torch.ops.aten


def join(entry: LegalEntry, _ranges: Ranges) -> None:
    """Write such gathers of an entry's graph and of its subgraphs anew."""
    for graph in list(hops.walk(entry.graph)):
        nodes = graph.graph.find_nodes(op="call_function", target=_ATEN.index.Tensor)
        open_ones = [node for node in nodes if _is_open(node)]
        for node in open_ones:
            _write(graph, node)
        if open_ones:
            graph.recompile()


def _is_open(node: Node) -> bool:
    """Whether there are several leading indices, of a size that varies, into dims of known sizes."""
    source, indices = node.args
    assert isinstance(source, Node)
    assert isinstance(indices, list | tuple)
    given = [index.meta["val"] for index in indices if isinstance(index, Node)]
    varies = any(isinstance(size, torch.SymInt) for value in given for size in value.shape)
    sizes = source.meta["val"].shape[1 : len(indices)]
    known = all(isinstance(size, int) for size in sizes)
    return len(given) == len(indices) > 1 and varies and known


def _write(graph: GraphModule, node: Node) -> None:
    source: Any = node.args[0]
    indices: Any = node.args[1]
    emit = Emitter(graph, node)
    value = source.meta["val"]
    place = indices[0]
    for dim, index in enumerate(indices[1:], 1):
        place = emit(_ATEN.add.Tensor, emit(_ATEN.mul.Scalar, place, value.shape[dim]), index)
    if not value.is_contiguous():
        source = emit(_ATEN.clone.default, source, memory_format=torch.contiguous_format)
    rest = [
        size if isinstance(size, int) else emit(_ATEN.sym_size.int, source, dim)
        for dim, size in enumerate(value.shape)
        if dim >= len(indices)
    ]
    rows = emit(_ATEN.view.default, source, [-1, *rest])
    found = emit(_ATEN.index.Tensor, rows, [place])
    # The rest of the graph was traced with this shape.
    found.meta = dict(node.meta)
    node.replace_all_uses_with(found, propagate_meta=False)
    graph.graph.erase_node(node)
