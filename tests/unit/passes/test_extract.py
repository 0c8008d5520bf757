"""Nodes of a graph as a graph of their own: sizes are computed anew, depth does not matter."""

from __future__ import annotations

import torch
from torch import fx

from aotpipe.passes.extract import extract, is_number, needs
from tests.unit.passes import legal


def rows(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return y.sum(1) / x.shape[0]


def test_a_size_is_taken_as_the_tensor_that_it_is_of():
    program = legal.legal(
        rows, (torch.ones(3, 2),), dynamic_shapes={"x": {0: torch.export.Dim("rows", min=2, max=8)}}
    )
    graph = program.entries[0].graph
    last = graph.graph.output_node().args[0][0]
    assert any(is_number(node) for node in graph.graph.nodes)
    taken = needs([last])
    assert all(isinstance(node.meta["val"], torch.Tensor) for node in taken)
    operands = [
        torch.full([int(size) if isinstance(size, int) else 4 for size in node.meta["val"].shape], 6.0)
        for node in taken
    ]
    [result] = extract(graph, taken, [last])(*operands)
    assert result.shape == (4,)


def test_a_deep_graph_and_order():
    graph = fx.Graph()
    node = first = graph.placeholder("x")
    for _ in range(5000):
        node = graph.call_function(torch.neg, (node,))
    other = graph.call_function(torch.abs, (first,))
    graph.output((node, other))
    module = fx.GraphModule(torch.nn.Module(), graph)
    copied = extract(module, [first], [other, node])
    two, one = copied(torch.tensor(-3.0))
    assert (two, one) == (3, -3)
    assert needs([other]) == [first]
