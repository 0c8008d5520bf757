"""What is left out of a trace changes nothing about the program."""

from __future__ import annotations

import re

import torch
from torch.fx import proxy

from aotpipe.export import tracing


class Branching(torch.nn.Module):
    def forward(self, x):
        return torch.cond(
            x.sum() > 0, lambda x: torch.cond(x.max() > 1, torch.sin, torch.cos, (x,)), torch.neg, (x,)
        )


def exported() -> torch.export.ExportedProgram:
    return torch.export.export(Branching(), (torch.ones(3),))


def traces(program: torch.export.ExportedProgram) -> list[str]:
    graphs = [each for each in program.graph_module.modules() if isinstance(each, torch.fx.GraphModule)]
    # torch numbers the code of all graphs that this process made.
    return [
        re.sub(r"(?<=<eval_with_key>\.)\d+", "", node.stack_trace or "")
        for graph in graphs
        for node in graph.graph.nodes
    ]


def test_graphs_and_lines_are_the_same():
    before = proxy.CapturedTraceback
    wanted = exported()
    with tracing.light_traces():
        found = exported()
    assert proxy.CapturedTraceback is before
    assert str(found.graph) == str(wanted.graph)
    assert traces(found) == traces(wanted)
    assert any("test_tracing_light" in each for each in traces(found))
    for value in (1.0, 0.1, -1.0):
        given = torch.full((3,), value)
        torch.testing.assert_close(found.module()(given), wanted.module()(given))
