"""Copies where a program shares memory in a way that torch's decomposition refuses.

torch refuses to functionalize a body of control flow that takes two views of one tensor, or that returns its
input, a view of it, or one tensor twice. `separate(program)` gives a program with clones in these places, or
the program itself where there are none. `relax(program)` gives a program whose views may copy. The program
given is left as it was. `owner(node)` is the node whose memory a value may lie in.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from aotpipe.passes import hops, ops
from aotpipe.passes.emit import Emitter

_CLONE: Final = torch.ops.aten.clone.default


def separate(program: ExportedProgram) -> ExportedProgram:
    """Give the same program with clones where a body's results, or what it takes, share memory."""
    graphs = list(hops.walk(program.graph_module))
    if not any(True for body in graphs[1:] for _ in shared_results(body)) and not any(
        True for graph in graphs for call in hops.calls(graph) for _ in _shared(call.all_operands, set())
    ):
        return program
    module = copy.deepcopy(program.graph_module)
    for graph in hops.walk(module):
        for call in hops.calls(graph):
            _clone_operands(call)
    for body in list(hops.walk(module))[1:]:
        clone_shared(body)
    return hops.with_graph(program, module)


def relax(program: ExportedProgram) -> ExportedProgram:
    """Give the same program with reshapes in place of views, which follow a value whose strides changed.

    Some of eager's kernels give strides of their own (attention on CPU gives those of its transposed output),
    and models view what only those strides allow. A decomposition gives other strides, and torch refuses the
    view. A reshape copies where it must. A view stays where a write to it or its base could be seen through
    the other. A write to a part of a tensor gives the whole other strides, too, and what is written may be a
    view inside of an op (a linear layer without a bias multiplies rows): a copy is written.
    """
    module = copy.deepcopy(program.graph_module)
    for body in hops.walk(module):
        for node in filter(_is_fresh, _last_writes(body)):
            whole = Emitter(body, node.next, cause=node).contiguous(node)
            for user in [user for user in node.users if user is not whole]:
                user.replace_input_with(node, whole)
        last = _last_writes(body)
        for at, node in enumerate(body.graph.nodes):
            if node.target is torch.ops.aten.view.default and at > last.get(owner(node), -1):
                node.target = torch.ops.aten.reshape.default
        body.recompile()
    return hops.with_graph(program, module)


def _last_writes(body: GraphModule) -> dict[Node, int]:
    """Where in a graph the memory of each node is written to for the last time."""
    return {owner(used): at for at, node in enumerate(body.graph.nodes) for used in ops.written(node)}


def _is_fresh(node: Node) -> bool:
    """Whether a node is a call of an op that gives one tensor with memory of its own."""
    return isinstance(node.target, torch._ops.OpOverload) and isinstance(node.meta.get("val"), torch.Tensor)  # noqa: SLF001


def _clone_operands(call: hops.Call) -> None:
    emit = Emitter(call.owner, call.node)
    owned: set[Node] = set()
    for position in call.layout.operands:
        operands = call.operands(position)
        if shared := list(_shared(operands, owned)):
            for index in shared:
                operands[index] = emit(_CLONE, operands[index])
            call.set_operands(position, operands)


def shared_results(body: GraphModule) -> Iterator[int]:
    """The positions of results that share memory with an input or with a result before them."""
    given = {node for node in body.graph.nodes if node.op in ("placeholder", "get_attr")}
    return _shared(hops.output_values(body), given)


def _shared(values: Sequence[Any], owned: set[Node]) -> Iterator[int]:
    """The positions of values in memory of the owned nodes or of a value before them; all become owned."""
    for index, value in enumerate(values):
        if isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor):
            memory = owner(value)
            if memory in owned:
                yield index
            owned.add(memory)


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
    while (schema := ops.schema(node)) is not None or node.target is operator.getitem:
        if schema is None:
            # All results of `chunk`, `unbind` and the like are views of the operand; other results are not.
            several = node.args[0]
            made = ops.schema(several) if isinstance(several, Node) else None
            assert isinstance(several, Node)
            if made is None or all(each.alias_info is None for each in made.returns):
                return several if _is_composite(several) else node
            node, schema = several, made
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


def _is_composite(call: Node) -> bool:
    """Whether an op is made of others, and its results may be views of one tensor: `where` of a condition."""
    target = call.target
    key = torch._C.DispatchKey.CompositeImplicitAutograd  # noqa: SLF001  # it has no public name
    return isinstance(target, torch._ops.OpOverload) and target.has_kernel_for_dispatch_key(key)  # noqa: SLF001


# These return their operand itself where there is nothing to do, which their schemas do not say.
_MAY_ALIAS: Final = frozenset(
    f"aten::{name}" for name in "reshape contiguous to type_as flatten expand_as view_as dropout".split()
)
