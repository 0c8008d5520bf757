"""A graph of torch.compile as a module for the stages."""

from __future__ import annotations

from pathlib import Path

import torch

from aotpipe.tools.torch_compile import graphs
from tests.unit.tools.torch_compile import graph


def test_parameters_become_weights_and_sizes_are_read_off_tensors() -> None:
    linear = torch.nn.Linear(4, 3)

    def call(x: torch.Tensor) -> torch.Tensor:
        return linear(x) * x.shape[0]

    module, args = graph.of(call, torch.ones(5, 4), dynamic=True)
    wanted = graphs.arguments(module)
    assert sum(bool(each.expression) for each in wanted) == 1
    closed = graphs.closed(module, wanted, args)
    [x] = closed.args
    assert len(closed.weights) == 2
    assert torch.equal(closed.module(x)[0], linear(x) * 5)
    assert torch.equal(closed.module(torch.ones(7, 4))[0], linear(torch.ones(7, 4)) * 7)
    assert [set(axes) for axes in closed.dynamic_shapes.values()] == [{0}]
    assert graphs.ops(module) == graphs.ops(module)


def test_a_number_that_no_tensor_has_stays_an_argument() -> None:
    module, args = graph.of(lambda x, k: x * k, torch.ones(2), 3, dynamic=True)
    closed = graphs.closed(module, graphs.arguments(module), args)
    assert sorted(str(type(each).__name__) for each in closed.args) == ["Tensor", "int"]


def test_nothing_varies_in_a_graph_without_symbols() -> None:
    module, args = graph.of(lambda x: x + 1, torch.ones(2), dynamic=False)
    closed = graphs.closed(module, graphs.arguments(module), args)
    assert not closed.dynamic_shapes
    assert closed.weights == ()


def test_where_a_graph_is_from() -> None:
    module, _ = graph.of(lambda x: x + 1, torch.ones(2))
    found = graphs.where(module)
    assert found is not None
    assert found.path.endswith(Path(__file__).name)
