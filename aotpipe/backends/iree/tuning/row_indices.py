"""Reads and updates of whole rows, as `index_select` and `index_put` of one index, which have kernels.

Graph networks write the index of a row once for each of its elements (`index.view(-1, 1).expand_as(x)`, then
`scatter_add` or `gather`), and `x[index]` may have more dims. `fixes/torch_dialect/row_copies.py` has kernels
for rows: 4096 rows of 64 floats are added in 0.3 of the time. It comes after `passes.index_bounds`, so that
no index counts from the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.fx import Node

from aotpipe.core.stages import LegalEntry
from aotpipe.passes import hops
from aotpipe.passes.decompositions.entries import is_one, static
from aotpipe.passes.emit import Emitter, rewrite
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten


def as_rows(entry: LegalEntry) -> None:
    """Write each such read and update of an entry point's graphs by one index for a row."""
    for graph in list(hops.walk(entry.graph)):
        nodes = [node for node in graph.graph.nodes if node.target in _FORMS]
        if rewrite(graph, nodes, lambda emit, node: _FORMS[node.target](emit, node)):
            graph.recompile()


def _add(emit: Emitter, node: Node) -> Node | None:
    into, dim, index, source = _arguments(node)[:4]
    if _shape(index) != _shape(source) or (of_rows := _of_rows(emit, into, dim, index)) is None:
        return None
    return emit(_ATEN.index_put.default, into, [of_rows], source, True)


def _gather(emit: Emitter, node: Node) -> Node | None:
    table, dim, index = _arguments(node)[:3]
    of_rows = _of_rows(emit, table, dim, index)
    return None if of_rows is None else emit(_ATEN.index_select.default, table, 0, of_rows)


def _index(emit: Emitter, node: Node) -> Node | None:
    table, indices = _arguments(node)
    if len(indices) != 1 or value_of(table).dim() < 2 or value_of(indices[0]).dtype is not torch.int64:
        return None
    places = value_of(indices[0])
    if places.dim() == 1:
        return emit(_ATEN.index_select.default, table, 0, indices[0])
    if places.dim() < 1 or not all(map(static, value_of(node).shape)):
        return None
    flat = emit(_ATEN.view.default, indices[0], [places.numel()])
    rows = emit(_ATEN.index_select.default, table, 0, flat)
    return emit(_ATEN.view.default, rows, list(value_of(node).shape))


def _of_rows(emit: Emitter, table: Node, dim: int, index: Node) -> Node | None:
    """The index of each row, where an index for each element repeats it in all of them."""
    if value_of(table).dim() != 2 or value_of(index).dim() != 2 or dim not in (0, -2):
        return None
    if index.target is not _ATEN.expand.default or _shape(index)[1] != _shape(table)[1]:
        return None
    source = index.all_input_nodes[0]
    shape = value_of(source).shape
    if len(shape) != 2 or not is_one(shape[1]) or str(shape[0]) != _shape(index)[0]:
        return None
    return emit(_ATEN.select.int, source, 1, 0)


def _arguments(node: Node) -> tuple[Any, ...]:
    return node.args


def _shape(node: Node) -> list[str]:
    return [str(size) for size in value_of(node).shape]


_FORMS: Final[dict[Any, Callable[[Emitter, Node], Node | None]]] = {
    _ATEN.scatter_add.default: _add,
    _ATEN.gather.default: _gather,
    _ATEN.index.Tensor: _index,
}
