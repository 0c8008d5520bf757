"""The inputs and results of a functional fx graph, and what wanted results depend on.

Everything here reads graphs and changes none. What is not needed is not imported, which matters beyond speed:
the compiler fails on some loops whose results nobody reads.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable
from typing import Any

from torch import fx
from torch._ops import OpOverload


def output_args(graph: fx.Graph) -> list[Any]:
    """A graph's outputs, each a node or a constant."""
    (result,) = graph.output_node().args
    return list(result) if isinstance(result, (tuple, list)) else [result]


def placeholders(graph: fx.Graph) -> list[fx.Node]:
    """A graph's inputs, in order."""
    return [node for node in graph.nodes if node.op == "placeholder"]


def output_values(graph: fx.Graph) -> list[Any]:
    """The fake values of a graph's outputs, or its constants."""
    return [arg.meta["val"] if isinstance(arg, fx.Node) else arg for arg in output_args(graph)]


def input_values(graph: fx.Graph) -> list[Any]:
    """The fake values of a graph's inputs."""
    return [node.meta["val"] for node in placeholders(graph)]


def result_values(node: fx.Node) -> list[Any]:
    """The fake values of the results of an op with several."""
    return list(node.meta["val"])


def subgraph(node: fx.Node, name: Any) -> fx.Graph:
    """The graph that an argument of a higher-order op names."""
    module = operator.attrgetter(name.target)(node.graph.owning_module)
    assert isinstance(module, fx.GraphModule), f"{name.target} is no graph"
    return module.graph


def needed_nodes(graph: fx.Graph, wanted: Collection[int]) -> set[fx.Node]:
    """The nodes that some outputs, given by position, depend on, and those that have an effect alone."""
    outputs = output_args(graph)
    roots = [outputs[position] for position in wanted]
    ops = [node for node in graph.nodes if isinstance(node.target, OpOverload)]
    roots += [node for node in ops if not node.target._schema.returns]  # noqa: SLF001 it has no public name
    return closure(root for root in roots if isinstance(root, fx.Node))


def used_results(node: fx.Node, needed: Collection[fx.Node]) -> set[int]:
    """Which results of a node with several are read by the needed nodes; all, where one reads it whole."""
    readers = [user for user in node.users if user in needed or user.op == "output"]
    if any(reader.target is not operator.getitem for reader in readers):
        return set(range(len(node.meta["val"])))
    return {int(reader.args[1]) for reader in readers}  # type: ignore[arg-type]


def live_carries(test: fx.Graph | None, body: fx.Graph, carries: range, used: Collection[int]) -> set[int]:
    """Which of a loop's carries matter.

    Args:
        test: The loop's condition, if it has one; its inputs are the body's.
        body: Its first outputs are the next carries, in order.
        carries: The positions of the carries among the body's inputs.
        used: The positions among the outputs, carries or not, that are read after the loop.

    Returns:
        The positions of the carries that are read after the loop, or that the condition or another such
        output depends on.
    """
    inputs = {node: position for position, node in enumerate(placeholders(body)) if position in carries}
    live = set(used)
    if test is not None:
        read = needed_nodes(test, [0])
        live |= {
            position
            for position, node in enumerate(placeholders(test))
            if position in carries and node in read
        }
    while True:
        read = needed_nodes(body, live)
        found = {position for node, position in inputs.items() if node in read}
        if found <= live:
            return {position for position in live if position in carries}
        live |= found


def closure(
    roots: Iterable[fx.Node], is_followed: Callable[[fx.Node], bool] = lambda _: True
) -> set[fx.Node]:
    """The nodes that the roots depend on, themselves included, as far as those between are followed."""
    found: set[fx.Node] = set()
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node not in found and is_followed(node):
            found.add(node)
            waiting += node.all_input_nodes
    return found
