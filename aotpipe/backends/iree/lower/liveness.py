"""The inputs and results of a functional fx graph, and what wanted results depend on.

Everything here reads graphs and changes none. What is not needed is not imported, which matters beyond speed:
the compiler fails on some loops whose results nobody reads.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

from torch import fx

from aotpipe.passes import hops, ops
from aotpipe.passes.extract import dependencies
from aotpipe.passes.scalars import value_of


def fake_inputs(module: fx.GraphModule) -> list[Any]:
    """The fake values of a graph's inputs."""
    return list(map(value_of, hops.placeholders(module)))


def fake_outputs(module: fx.GraphModule) -> list[Any]:
    """The fake values of a graph's outputs, or its constants."""
    return list(map(value_of, hops.output_values(module)))


def needed_nodes(module: fx.GraphModule, wanted: Collection[int]) -> set[fx.Node]:
    """The nodes that some outputs, given by position, depend on, and those that have an effect alone."""
    outputs = hops.output_values(module)
    effects = [node for node in module.graph.nodes if (schema := ops.schema(node)) and not schema.returns]
    return dependencies([*(outputs[position] for position in wanted), *effects])


def used_results(node: fx.Node, needed: Collection[fx.Node]) -> set[int]:
    """Which results of a node with several are read by the needed nodes; all, where one reads it whole."""
    readers = [user for user in node.users if user in needed or user.op == "output"]
    if any(reader.target is not operator.getitem for reader in readers):
        return set(range(len(node.meta["val"])))
    return {int(reader.args[1]) for reader in readers}  # type: ignore[arg-type]


def live_carries(
    test: fx.GraphModule | None, body: fx.GraphModule, carries: range, used: Collection[int]
) -> set[int]:
    """The positions of a loop's carries that are read after it, or that what is read or tested depends on.

    Args:
        test: The loop's condition, if it has one; its inputs are the body's.
        body: Its first outputs are the next carries, in order.
        carries: The positions of the carries among the body's inputs.
        used: The positions among the outputs, carries or not, that are read after the loop.
    """

    def read(module: fx.GraphModule, outputs: Collection[int]) -> set[int]:
        inputs, needed = hops.placeholders(module), needed_nodes(module, outputs)
        return {position for position in carries if inputs[position] in needed}

    live = {*used, *(read(test, [0]) if test is not None else ())}
    while not (found := read(body, live)) <= live:
        live |= found
    return live.intersection(carries)
