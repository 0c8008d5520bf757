"""Takes nodes out of a legal graph as a graph of their own.

`needs(nodes)` is what they are computed from and that is not among them; `extract(...)` copies them. A size
never passes as a value: it is computed anew from the tensor that it is of.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx


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

    Args:
        owner: The graph they are of, with the subgraphs and constants that they name.
        taken: Become placeholders, in this order.
        given: Become the results; whatever they are computed from, up to `taken`, is copied.
        nodes: To be copied first, in this order, also where no result needs them.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in taken:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = {key: value for key, value in node.meta.items() if key != "from_node"}

    def copy(node: fx.Node) -> fx.Node:
        waiting = [node]
        # A graph may be deeper than Python's stack.
        while waiting:
            missing = [used for used in waiting[-1].all_input_nodes if used not in copies]
            if missing:
                waiting += missing
                continue
            last = waiting.pop()
            if last not in copies:
                copies[last] = graph.node_copy(last, lambda used: copies[used])
        return copies[node]

    for node in nodes:
        copy(node)
    graph.output(tuple(copy(node) for node in given))
    return fx.GraphModule(owner, graph)
