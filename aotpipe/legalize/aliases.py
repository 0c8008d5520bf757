"""Lets control-flow bodies return fresh tensors.

torch refuses to functionalize a body that returns its input, a view of it, or one tensor twice. `separate(
program)` gives a program whose bodies return clones in these places, or the program itself where there are
none; the program given is left as it was.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Final

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from aotpipe.legalize import hops, ops
from aotpipe.legalize.emit import Emitter

_CLONE: Final = torch.ops.aten.clone.default


def separate(program: ExportedProgram) -> ExportedProgram:
    """Give the same program with clones where a body's results share memory."""
    if not any(True for body in _bodies(program.graph_module) for _ in shared_results(body)):
        return program
    module = copy.deepcopy(program.graph_module)
    for body in _bodies(module):
        clone_shared(body)
    return hops.with_graph(program, module)


def _bodies(module: GraphModule) -> list[GraphModule]:
    return list(hops.walk(module))[1:]


def shared_results(body: GraphModule) -> Iterator[int]:
    """The positions of results that share memory with an input or with a result before them."""
    owners: set[Node] = set()
    for index, value in enumerate(hops.output_values(body)):
        if isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor):
            memory = owner(value)
            if memory.op in ("placeholder", "get_attr") or memory in owners:
                yield index
            owners.add(memory)


def clone_shared(body: GraphModule) -> None:
    """Clone the results that share memory."""
    values = hops.output_values(body)
    emit = Emitter(body, body.graph.output_node())
    for index in list(shared_results(body)):
        values[index] = emit(_CLONE, values[index])
    hops.set_output_values(body, values)
    body.recompile()


def owner(node: Node) -> Node:
    """The node whose memory a node's value may lie in."""
    while (schema := ops.schema(node)) is not None:
        viewed = [
            used
            for argument, used in zip(schema.arguments, node.args, strict=False)
            if argument.alias_info is not None and isinstance(used, Node)
        ]
        if not viewed and schema.name in _MAY_ALIAS:
            viewed = node.all_input_nodes[:1]
        if not viewed:
            break
        node = viewed[0]
    return node


# These give their operand back as it is where there is nothing to do, which their schemas do not say.
_MAY_ALIAS: Final = frozenset(
    f"aten::{name}" for name in "reshape contiguous to type_as flatten expand_as view_as dropout".split()
)
