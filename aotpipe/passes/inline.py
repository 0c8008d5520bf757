"""Copies computations of one graph into another.

`graft(module, before, body, values, wanted)` writes what the `wanted` results of `body` depend on into the
graph of `module`, right before a node, with `values` for the body's placeholders, and gives the results.
Subgraphs that come along are shared by reference under a free name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from aotpipe.passes import hops


def graft(
    module: GraphModule,
    before: Node,
    body: GraphModule,
    values: Sequence[Any],
    wanted: Sequence[Any],
    *,
    everything: bool = False,
) -> list[Any]:
    """Copy what `wanted` depends on, or `everything`, and give the wanted values in the graph of `module`."""
    known: dict[Node, Any] = dict(zip(hops.placeholders(body), values, strict=True))
    needed = _dependencies(wanted)
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
    return [known[value] if isinstance(value, Node) else value for value in wanted]


def _dependencies(wanted: Sequence[Any]) -> set[Node]:
    found: set[Node] = set()
    stack = [value for value in wanted if isinstance(value, Node)]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.all_input_nodes
    return found


def _adopt(module: GraphModule, body: GraphModule, target: str) -> str:
    """Give an attribute of the body to the module, under a free name."""
    value: object = body
    for part in target.split("."):
        value = getattr(value, part)
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
