"""A distance is 0 exactly where the predicate is what is wanted, and its gradient points there."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotpipe.validate.coverage.distance import distance
from aotpipe.validate.coverage.interpreter import Frame

PREDICATES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gt": lambda x: x[0] > 0.5,
    "ge": lambda x: x[0] >= 0.5,
    "lt": lambda x: x[0] < x[1],
    "le": lambda x: x[0] <= 1,
    "eq": lambda x: x[0] == 2,
    "ne": lambda x: x[0] != 2,
    "and": lambda x: (x[0] > 0) & (x[1] > 0),
    "or": lambda x: torch.logical_or(x[0] > 0, x[1] > 0),
    "not": lambda x: torch.logical_not(x[0] > 0),
    "any": lambda x: (x > 1).any(),
    "all": lambda x: (x > 0).all(),
    "view": lambda x: (x > 1).reshape(2, 2)[1, 1],
    "flag": lambda x: (x > 0).to(torch.bool).clone()[0],
    "number": lambda x: x.sum(),
}


def traced(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> tuple[Frame, Any]:
    """The frame of a run of a function's graph, and what it returns there."""
    graph = torch.fx.experimental.proxy_tensor.make_fx(function)(torch.zeros(4)).graph
    frame = Frame()
    for node in graph.nodes:
        if node.op == "placeholder":
            frame.values[node] = x
        elif node.op == "call_function":
            args = torch.fx.node.map_arg(node.args, frame.values.__getitem__)
            frame.values[node] = node.target(*args, **node.kwargs)
    return frame, graph.output_node().args[0]


@pytest.mark.parametrize("name", PREDICATES)
def test_it_is_zero_where_the_predicate_is_as_wanted(name: str):
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        x = torch.randint(-2, 4, (4,), generator=generator).float()
        frame, returned = traced(PREDICATES[name], x)
        truth = bool(frame.value(returned))
        assert distance(frame, returned, truth) == 0, (name, x)
        assert distance(frame, returned, not truth) > 0, (name, x)


@pytest.mark.parametrize("name", ["gt", "lt", "and", "or", "not", "any", "all"])
def test_a_step_along_its_gradient_brings_it_nearer(name: str):
    x = torch.tensor([-1.0, -2.0, -3.0, -4.0], requires_grad=True)
    frame, returned = traced(PREDICATES[name], x)
    wanted = not bool(frame.value(returned))
    before = distance(frame, returned, wanted)
    before.backward()
    frame, returned = traced(PREDICATES[name], (x - 0.1 * operator.truediv(x.grad, x.grad.norm())).detach())
    assert distance(frame, returned, wanted) < before
