"""A graph of torch.compile is a module for the stages; its results lie in memory as eager's do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from aotpipe.errors import UnsupportedOps
from aotpipe.tools.torch_compile import graphs
from aotpipe.tools.torch_compile.graphs import layouts, placed
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


def again(call: Any, *args: Any) -> tuple[list[Any], Any]:
    """Contiguous results of a graph, placed, and eager's."""
    module, flat = graph.of(call, *args)
    results = [each.contiguous() if isinstance(each, torch.Tensor) else each for each in module(*flat)]
    return placed(layouts(module), results), call(*args)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: (x + 1,),
        lambda x: ((x + 1).permute(1, 2, 0).clone(),),
        lambda x: ((x + 1).t()[1:],) if x.dim() == 2 else ((x + 1).transpose(0, 2)[1:],),
    ],
)
def test_strides_are_eager_s(call: Any) -> None:
    got, want = again(call, torch.randn(2, 3, 4))
    torch.testing.assert_close(tuple(got), want, check_stride=True)


def test_what_shares_memory_goes_on_sharing_it() -> None:
    def call(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return y, y[1:], y.t()

    got, want = again(call, torch.randn(3, 4))
    torch.testing.assert_close(tuple(got), want, check_stride=True)
    got[0].fill_(7)
    assert (got[1] == 7).all()
    assert (got[2] == 7).all()


def test_an_empty_result_and_an_expanded_one() -> None:
    got, want = again(lambda x: ((x + 1)[:0], (x.sum() + 1).expand(3)), torch.randn(3, 4))
    torch.testing.assert_close(tuple(got), want)


def test_shared_memory_of_varying_strides_is_refused() -> None:
    module, _ = graph.of(lambda x: ((y := x + 1), y.t()), torch.randn(3, 4), dynamic=True)
    with pytest.raises(UnsupportedOps, match="share memory"):
        layouts(module)


def test_a_size_is_a_number() -> None:
    module, flat = graph.of(lambda x, k: (x * k, x + 1), torch.ones(3), 4, dynamic=True)
    assert not any(each.is_number for each in layouts(module))
    assert [tuple(each.shape) for each in module(*flat)] == [(3,), (3,)]
