"""The user's line of a graph node."""

from __future__ import annotations

from pathlib import Path

import torch

from aotpipe.passes.source_lines import source_line


def test_exported_nodes_name_this_file() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.linear(x)
            return out

    program = torch.export.export(Net().eval(), (torch.ones(1, 2),))
    (node,) = program.graph.find_nodes(op="call_function", target=torch.ops.aten.linear.default)
    found = source_line(node)
    assert found is not None
    assert Path(found.path).resolve() == Path(__file__)


def test_a_node_without_a_trace_has_no_line() -> None:
    graph = torch.fx.Graph()
    assert source_line(graph.placeholder("x")) is None
