"""What is left out of a trace changes nothing about the program."""

from __future__ import annotations

import torch
from torch.utils import _traceback

from aotpipe.export import tracing


class Branching(torch.nn.Module):
    def forward(self, x):
        return torch.cond(
            x.sum() > 0, lambda x: torch.cond(x.max() > 1, torch.sin, torch.cos, (x,)), torch.neg, (x,)
        )


def exported() -> torch.export.ExportedProgram:
    return torch.export.export(Branching(), (torch.ones(3),))


def traces(program: torch.export.ExportedProgram) -> list[str | None]:
    graphs = [each for each in program.graph_module.modules() if isinstance(each, torch.fx.GraphModule)]
    return [node.stack_trace for graph in graphs for node in graph.graph.nodes]


def test_graphs_and_lines_are_the_same():
    before = _traceback._extract_symbolized_tb
    wanted = exported()
    with tracing.light_traces():
        found = exported()
    assert _traceback._extract_symbolized_tb is before
    assert str(found.graph) == str(wanted.graph)
    lines = [
        {line for line in (each or "").splitlines() if "test_tracing_light" in line} for each in traces(found)
    ]
    assert lines == [
        {line for line in (each or "").splitlines() if "test_tracing_light" in line}
        for each in traces(wanted)
    ]
    assert any(lines)
    for value in (1.0, 0.1, -1.0):
        given = torch.full((3,), value)
        torch.testing.assert_close(found.module()(given), wanted.module()(given))
