"""The user's lines behind nodes, and the variables that they name."""

from __future__ import annotations

import torch
from torch import nn

from aotpipe.tools.rewrite.lines import Lines
from tests.unit.tools.rewrite.graph import graph


class Net(nn.Module):
    def forward(self, x):
        doubled = x * 2 + 1
        return doubled - x


def test_a_line_names_its_last_result():
    nodes = list(graph(Net(), torch.ones(2)).graph.nodes)
    lines = Lines(nodes)
    mul, add, sub = (node for node in nodes if node.op == "call_function")
    assert lines.target(mul) is None
    assert lines.target(add) == "doubled"
    assert lines.target(sub) is None
    assert lines.is_same(mul, add)
    assert not lines.is_same(add, sub)
    assert str(lines.where(add)).endswith("test_lines.py:14")
