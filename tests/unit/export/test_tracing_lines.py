"""Ops bear their own lines, also in functions that a method calls."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from aotpipe.export.tracing import lines_of_helpers
from aotpipe.model import source

X = torch.ones(3)


def helper(x: torch.Tensor) -> torch.Tensor:
    return x.sin()  # of the op


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return helper(x) + 1


def line_of_sin() -> Any:
    graph = torch.export.export(Model(), (X,)).graph
    [node] = [each for each in graph.nodes if each.target is torch.ops.aten.sin.default]
    return source.from_stack_trace(node.meta["stack_trace"])


def test_an_op_in_a_helper_bears_its_own_line():
    _, start = inspect.getsourcelines(helper)
    with lines_of_helpers():
        assert line_of_sin().line == start + 1
    _, start = inspect.getsourcelines(Model)
    assert line_of_sin().line == start + 2
