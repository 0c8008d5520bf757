"""Writes bags of equal sizes as sums over a dim of the rows that they hold.

`nn.EmbeddingBag` of a matrix of indices names the start of each row, `arange(0, batch * size, size)`, to an
op that takes bags of any sizes, which would count for each index in which bag it is and add its row to that.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from aotpipe.passes import hops, ops
from aotpipe.passes.decompositions.entries import HALF
from aotpipe.passes.emit import Emitter, rewrite
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
_BAGS: Final = ops.overloads(
    "embedding_bag embedding_bag.padding_idx _embedding_bag _embedding_bag_forward_only"
)
_SUMS: Final = (_ATEN.sum.dim_IntList, _ATEN.mean.dim)
"""By the number of the op's mode; which NaN is the largest of a bag its own decomposition decides."""


def sum_rows(program: ExportedProgram) -> ExportedProgram:
    """Give the same program with the sums and means of equal bags over a dim."""
    if not any(_results(body) for body in hops.walk(program.graph_module)):
        return program
    module = copy.deepcopy(program.graph_module)
    for body in hops.walk(module):
        results = _results(body)
        calls = [result.args[0] for result in results]
        rewrite(body, results, _summed)
        for call in calls:
            assert isinstance(call, Node)
            for node in (*call.users, call):
                body.graph.erase_node(node)
        body.recompile()
    return hops.with_graph(program, module)


def _results(module: GraphModule) -> list[Node]:
    """The values of bags that are equal, and of which nothing else is read."""
    found = []
    for node in module.graph.nodes:
        if node.target in _BAGS and _are_equal(node):
            read = [user for user in node.users if user.users]
            found += [user for user in read if len(read) == 1 and user.args == (node, 0)]
    return found


def _are_equal(node: Node) -> bool:
    given = ops.arguments(node)
    offsets, padding = given["offsets"], given.get("padding_idx")
    if getattr(offsets, "target", None) is not _ATEN.arange.start_step or given["include_last_offset"]:
        return False
    start, end, step = (value_of(each) for each in list(ops.arguments(offsets).values())[:3])
    [count] = value_of(given["indices"]).shape
    # Products of half precision are not rounded before they are summed.
    is_plain = given["per_sample_weights"] is None or value_of(given["weight"]).dtype not in HALF
    return (
        is_plain
        and (start == 0) is True
        and given["mode"] < len(_SUMS)
        and padding in (None, -1)
        and isinstance(step, int)
        and step > 0
        and statically_known_true(end == count)
        and statically_known_true(count % step == 0)
    )


def _summed(emit: Emitter, result: Node) -> Node:
    call = result.args[0]
    assert isinstance(call, Node)
    given: dict[str, Any] = ops.arguments(call)
    size, width = value_of(ops.arguments(given["offsets"])["step"]), value_of(given["weight"]).shape[1]
    rows = emit(_ATEN.index_select.default, given["weight"], 0, given["indices"])
    if given["per_sample_weights"] is not None:
        factors = emit(_ATEN.unsqueeze.default, given["per_sample_weights"], 1)
        rows = emit(_ATEN.mul.Tensor, rows, factors)
    bags = emit(_ATEN.reshape.default, rows, [-1, size, width])
    return emit(_SUMS[given["mode"]], bags, [1])
