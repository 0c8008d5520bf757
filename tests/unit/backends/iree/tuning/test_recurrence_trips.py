"""What a trip computes, read from its graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from aotpipe.backends.iree.kernels.recurrence import Recurrence, Step
from aotpipe.backends.iree.tuning.recurrence_trips import Trip, trip
from tests.unit.backends.iree.tuning.test_depthwise_sums import tensor


def _read(body: Any, *inputs: torch.Tensor, carries: int = 1, rows: int = 1) -> Trip | None:
    graph: GraphModule = make_fx(body, tracing_mode="fake")(*inputs)
    results = len(graph.graph.output_node().args[0])  # type: ignore[arg-type]
    return trip(graph, (carries, rows), range(carries), range(carries, results))


def test_one_sequence_has_all_dims() -> None:
    found = _read(lambda state, row: [state * row + 1], tensor(2, 8), tensor(2, 8))
    assert found is not None
    assert not found.has_batch
    steps = (Step("mul", ("h0", "x0"), 16), Step("add", ("v0", 1.0), 16))
    assert found.recurrence == Recurrence((16,), (16,), (), (), steps, ("v1",), ())


def test_a_batch_is_apart_where_a_matrix_multiplies_each_of_it() -> None:
    found = _read(
        lambda state, row, weight, bias: [torch.addmm(bias, state, weight.t()) + row],
        *(tensor(*sizes) for sizes in ((2, 8), (2, 8), (8, 8), (8,))),
    )
    assert found is not None
    assert found.has_batch
    assert found.recurrence.steps == (
        Step("matmul", ("h0", "m0"), 8),
        Step("add", ("c0", "v0"), 8),
        Step("add", ("v1", "x0"), 8),
    )
    assert [is_turned for _, is_turned in found.matrices] == [True]


def test_a_vector_of_the_batchs_size_is_no_row() -> None:
    """A number for each sequence, which no vector has."""
    found = _read(
        lambda state, row, weight, column: [state @ weight + row * column],
        *(tensor(*sizes) for sizes in ((8, 8), (8, 8), (8, 8), (8, 1))),
    )
    assert found is None


@pytest.mark.parametrize(
    "body",
    [
        lambda state, row: [state.double().float() + row],
        lambda state, row: [torch.where((state > 0) & (row > 0), state, row)],
        lambda state, row: [state + row.flip(0)],
        lambda state, _: [state * 2],
        lambda state, row: [torch.add(state, row, alpha=2)],
        lambda state, row: [(state.t() + row.t()).t().reshape(8, 2).t()],
    ],
)
def test_other_forms(body: Any) -> None:
    assert _read(body, tensor(2, 8), tensor(2, 8)) is None


def test_what_no_result_needs_is_not_read() -> None:
    found = _read(
        lambda state, row, other: [state + row, (state + row).sin() * 0 + other.sum()][:1],
        *(tensor(8) for _ in range(3)),
        rows=2,
    )
    assert found is not None
    assert found.recurrence.rows == (8,)


def test_a_result_may_be_what_no_trip_changes() -> None:
    found = _read(lambda state, row, vector: [state + row, vector], *(tensor(8) for _ in range(3)))
    assert found is not None
    assert found.recurrence.vectors == (8,)
    assert found.recurrence.outputs == ("c0",)
