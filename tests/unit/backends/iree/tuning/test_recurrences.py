"""Scans of small tensors are computed by one dispatch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan_op

from aotpipe import Dim
from aotpipe.backends.iree.lower import importer
from aotpipe.backends.iree.tuning import recurrences
from tests.programs import with_kernels
from tests.programs.through import legal
from tests.unit.backends.iree.tuning.test_depthwise_sums import run, tensor


class Layer(nn.Module):
    """A recurrent layer, and what is read of it."""

    def __init__(self, kind: str, *given: int, **options: Any) -> None:
        super().__init__()
        self.layer = getattr(nn, kind)(*given, **options)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return self.layer(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("kind", "options", "count"),
    [
        ("LSTM", {}, 1),
        ("LSTM", {"proj_size": 5, "batch_first": True}, 1),
        ("GRU", {"bidirectional": True, "num_layers": 2}, 4),
        ("RNN", {"nonlinearity": "relu", "bias": False}, 1),
    ],
)
def test_recurrent_layers_are_taken(kind: str, options: dict[str, Any], count: int) -> None:
    found = run(Layer(kind, 6, 20, **options).eval(), (tensor(7, 2, 6),))
    assert found.count(str(recurrences.OP)) == count


def test_sizes_that_a_call_decides() -> None:
    sizes = {"x": {0: Dim("t", min=1, max=64), 1: Dim("b", min=1, max=16)}}
    calls = [(tensor(*sizes, 6),) for sizes in ((7, 2), (1, 1), (12, 5))]
    found = run(Layer("LSTM", 6, 20).eval(), *calls, dynamic_shapes=sizes)
    assert found.count(str(recurrences.OP)) == 1


class Scan(nn.Module):
    """Trips of one function of a carry, a row and a matrix."""

    def __init__(self, trip: Any, size: int) -> None:
        super().__init__()
        self.trip, self.weight = trip, nn.Parameter(tensor(size, size) / size)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def body(state: torch.Tensor, row: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
            following = self.trip(state, row, weight)
            return [following, following * 2]

        last, stacked = scan_op(body, [state], [x], (self.weight,))
        return last, stacked


TAKEN = {
    "elementwise": lambda state, row, _: (state * 0.5 + row).clamp(-1, 1),
    "a matrix by a column": lambda state, row, weight: torch.tanh(torch.mv(weight, state) + row),
    "the first number for all": lambda state, row, _: state[:1].expand(12) + row,
    "parts in another order": lambda state, row, _: torch.cat([state[8:], row[:8]]),
}
APART = {
    "a sum": lambda state, row, _: state - (state * row).sum(),
    "a product of what trips change": lambda state, row, weight: torch.mv(weight * row[0], state),
    "every other number": lambda state, row, _: torch.cat([state[::2], row[1::2]]),
    "a row that varies": lambda state, row, _: state.roll(1) + row.argmax(),
}


@pytest.mark.parametrize("form", TAKEN)
def test_what_has_a_form_is_taken(form: str) -> None:
    found = run(Scan(TAKEN[form], 12).eval(), (tensor(5, 12), tensor(12)))
    assert str(recurrences.OP) in found


@pytest.mark.parametrize("form", APART)
def test_what_has_none_stays_a_loop(form: str) -> None:
    found = run(Scan(APART[form], 12).eval(), (tensor(5, 12), tensor(12)))
    assert str(recurrences.OP) not in found


def test_large_weights_stay_a_loop() -> None:
    program = legal(Layer("RNN", 4, 600).eval(), (tensor(3, 1, 4),))
    assert not program.entries[0].graph.graph.find_nodes(op="call_function", target=recurrences.OP)


def test_a_program_has_the_kernel_or_the_loop() -> None:
    module = importer.lower(legal(Layer("LSTM", 6, 20).eval(), (tensor(7, 2, 6),))).module
    assert b"scf.for" in module
    kernel, loop = (with_kernels(module, backend).decode() for backend in ("llvm-cpu", "vmvx"))
    assert "aotpipe.recurrence" not in kernel + loop
    assert "flow.dispatch @scan_" in kernel
    # Neither the loop is left, nor the buffers that it had.
    assert "util.optimization_barrier" not in kernel
    assert "scf.for" in loop
    assert "flow.dispatch @scan_" not in loop


@pytest.mark.parametrize("backend", ["vmvx"])
def test_the_loop_computes_the_same(backend: str) -> None:
    run(Layer("GRU", 6, 20).eval(), (tensor(7, 2, 6),), backend=backend)
