"""What is done to graphs before and while the importer reads them: each `apply` is a `GraphRewrite`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch.fx import GraphModule, Node


@dataclass(frozen=True, slots=True)
class GraphRewrite:
    """A rewrite of a program's graphs.

    Attributes:
        rewrite: Changes them in place, all of the program's at once.
        own_buffers: Gives the operands of an op that must be in buffers of their own before it reads them.
    """

    rewrite: Callable[[Sequence[GraphModule]], None] = lambda _graphs: None
    own_buffers: Callable[[Node], tuple[Node, ...]] = lambda _node: ()


def modules(graphs: Sequence[GraphModule]) -> list[GraphModule]:
    """Graphs with their subgraphs."""
    return [module for graph in graphs for module in graph.modules() if isinstance(module, GraphModule)]
