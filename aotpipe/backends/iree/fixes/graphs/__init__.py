"""What is done to graphs before and while the importer reads them: each `apply` is a `GraphRewrite`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from aotpipe.passes.emit import Emitter, rewrite


@dataclass(frozen=True, slots=True)
class GraphRewrite:
    """A rewrite of a program's graphs.

    Attributes:
        rewrite: Changes them in place, all of the program's at once.
        own_buffers: Gives the operands of an op that must be in buffers of their own before it reads them.
    """

    rewrite: Callable[[Sequence[GraphModule]], None] = lambda _graphs: None
    own_buffers: Callable[[Node], tuple[Node, ...]] = lambda _node: ()


def each_node(targets: Collection[Any], write: Callable[[Emitter, Node], Node | None]) -> GraphRewrite:
    """The rewrite of each node of some ops by the one that `write` gives for it, if it gives one."""

    def rewrite_all(graphs: Sequence[GraphModule]) -> None:
        for module in modules(graphs):
            rewrite(module, [node for node in module.graph.nodes if node.target in targets], write)

    return GraphRewrite(rewrite_all)


def equal_nodes(graph: Graph) -> dict[Node, Node]:
    """For each node the first that computes the same: the compiler makes one of both."""
    found: dict[Node, Node] = {}
    first: dict[str, Node] = {}
    for node in graph.nodes:
        found[node] = node
        if node.op == "call_function" and isinstance(node.target, OpOverload):
            given = map_arg((node.args, node.kwargs), lambda used: found[used])
            found[node] = first.setdefault(f"{node.target}{given}", node)
    return found


def modules(graphs: Sequence[GraphModule]) -> list[GraphModule]:
    """Graphs with their subgraphs."""
    return [module for graph in graphs for module in graph.modules() if isinstance(module, GraphModule)]
