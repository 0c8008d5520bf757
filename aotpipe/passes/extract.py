"""Copies nodes from one graph into another.

`extract(...)` takes nodes out of a graph as a graph of their own; `needs(nodes)` is what they are computed
from and that is not among them. A size never passes as a value: it is computed anew from the tensor that it
is of. `graft(...)` writes what results of a body depend on into the graph around it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx

from aotpipe.passes import hops


def is_number(node: fx.Node) -> bool:
    """Whether a node's value is a size or another number, and no tensor."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float))


def needs(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """What nodes are computed from and that is not among them, in the order of first use."""
    own = set(nodes)
    found: dict[fx.Node, None] = {}

    def need(node: fx.Node) -> None:
        if node.op == "get_attr" or node in own or node in found:
            return
        if is_number(node) and node.op == "call_function":
            for used in node.all_input_nodes:
                need(used)
            return
        found[node] = None

    for node in nodes:
        for used in node.all_input_nodes:
            need(used)
    return list(found)


def extract(
    owner: fx.GraphModule, taken: Sequence[fx.Node], given: Sequence[fx.Node], nodes: Sequence[fx.Node] = ()
) -> fx.GraphModule:
    """A graph that computes nodes of another.

    `taken` become placeholders, `given` results; `nodes` are copied also where no result needs them.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in taken:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = {key: value for key, value in node.meta.items() if key != "from_node"}
    needed = dependencies([*nodes, *given], lambda node: node not in copies)
    for node in owner.graph.nodes:
        if node in needed and node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in given))
    return fx.GraphModule(owner, graph)


def graft(
    module: fx.GraphModule,
    before: fx.Node,
    body: fx.GraphModule,
    values: Sequence[Any],
    wanted: Sequence[Any],
    *,
    everything: bool = False,
) -> list[Any]:
    """Copy what `wanted` depends on, or `everything`, and give the wanted values in the graph of `module`.

    `values` are for the body's placeholders. `wanted` are its nodes, or constants, which are given as they
    are; `everything` also copies what no result needs, such as writes and asserts. Subgraphs that come along
    are shared by reference under a free name.
    """
    known: dict[fx.Node, Any] = dict(zip(hops.placeholders(body), values, strict=True))
    needed = dependencies(wanted)
    for node in body.graph.nodes:
        if node in known or node.op == "output" or not (everything or node in needed):
            continue
        with module.graph.inserting_before(before):
            copied = module.graph.node_copy(node, known.__getitem__)
        if node.op == "get_attr":
            copied.target = _adopt(module, body, str(node.target))
        if "stack_trace" in before.meta:
            copied.meta.setdefault("stack_trace", before.meta["stack_trace"])
        known[node] = copied
    return [known[value] if isinstance(value, fx.Node) else value for value in wanted]


def dependencies(
    wanted: Iterable[Any], is_followed: Callable[[fx.Node], bool] = lambda _: True
) -> set[fx.Node]:
    """The nodes that values depend on, themselves included, as far as those between are followed."""
    found: set[fx.Node] = set()
    waiting = [value for value in wanted if isinstance(value, fx.Node)]
    while waiting:
        node = waiting.pop()
        if node not in found and is_followed(node):
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _adopt(module: fx.GraphModule, body: fx.GraphModule, target: str) -> str:
    """Set an attribute of the body on the module, under a free name, and give that name."""
    value = operator.attrgetter(target)(body)
    name = base = target.replace(".", "_")
    count = 0
    while hasattr(module, name) and getattr(module, name) is not value:
        count += 1
        name = f"{base}_{count}"
    if isinstance(value, torch.Tensor):
        module.register_buffer(name, value, persistent=False)
    else:
        setattr(module, name, value)
    return name
