"""The ops that have no public name are what torch.export writes."""

from __future__ import annotations

import operator

import pytest
import torch

from aotpipe.passes import ops


class Named(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > 0).all(), "positive")
        n = x[0].to(torch.int64).item()
        torch._check(n >= 0)
        return x.to(torch.float64) * n


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch calls what it has deprecated itself
def test_export_writes_these_ops() -> None:
    program = torch.export.export(Named(), (torch.ones(3),)).run_decompositions()
    found = {node.target for node in program.graph.nodes}
    assert {ops.ITEM, ops.CAST, ops.ASSERT_TENSOR, ops.ASSERT_NUMBER} <= found


def test_only_an_op_has_a_schema() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    cast = graph.call_function(ops.CAST, (x,))
    first = graph.call_function(operator.getitem, (x, 0))
    assert ops.schema(cast).name == "aten::_to_copy"
    assert ops.schema(first) is None
    assert ops.schema(x) is None


def test_the_schema_says_what_is_written_and_what_is_a_view() -> None:
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    added = graph.call_function(torch.ops.aten.add_.Tensor, (x, y))
    viewed = graph.call_function(torch.ops.aten.view.default, (x, [-1]))
    copied = graph.call_function(torch.ops.aten.add.Tensor, (x, y))
    first = graph.call_function(operator.getitem, (x, 0))
    nodes = (added, viewed, copied, first, x)
    assert [list(ops.written(node)) for node in nodes] == [[x], [], [], [], []]
    assert [ops.gives_view(node) for node in nodes] == [True, True, False, False, False]
