"""Graphs on padded values: numbers made of sizes, regions, and what has no rule."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.export import Dim

from aotpipe.backends.xla import interpreter, lowering
from aotpipe.errors import AssertionViolated, CannotPad
from tests.programs import on_xla, through
from tests.unit.backends.xla.padding.cases import CASES
from tests.unit.backends.xla.padding.test_rules import check

DIMS = {"x": {0: Dim("n", min=1, max=8)}}


class Sizes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(0) / x.shape[0], torch.full((2,), x.shape[0] * 3), x + x.shape[0] // 2


class State(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += torch.cond(x.sum() > 0, lambda x: x.mean(0), lambda x: x.amax(0), (x,))
        return x - self.total


def test_numbers_of_sizes_are_the_true_ones():
    on_xla.check_padded(
        Sizes(), *[(torch.randn(n, 3),) for n in (5, 1, 8)], buckets={"n": (8,)}, dynamic_shapes=DIMS
    )


def test_state_is_what_it_would_be_without_padding():
    torch.manual_seed(0)
    calls = [(torch.randn(n, 3),) for n in (5, 3, 8, 1)]
    on_xla.check_padded(State().eval(), *calls, buckets={"n": (4, 8)}, dynamic_shapes=DIMS)


class Scattered(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        square = torch.zeros(x.shape[0], x.shape[0])
        wide = torch.zeros(x.shape[0], 6)
        above = torch.diagonal_scatter(square, x[1:].abs(), 1) + torch.diagonal_scatter(square, x[1:], -1)
        return torch.diagonal_scatter(square, x) @ above, torch.diagonal_scatter(wide, wide.diagonal() + 2)


def test_diagonals_are_written_where_the_true_matrix_has_them():
    calls = [(torch.randn(n),) for n in (5, 3, 8, 2)]
    on_xla.check_padded(Scattered(), *calls, buckets={"n": (4, 8)}, dynamic_shapes=DIMS)


def test_an_op_without_a_rule_is_refused(monkeypatch):
    op = torch.ops.aten.diagonal_scatter.default
    without = {**interpreter.table(), op: replace(interpreter.table()[op], pad=None)}
    monkeypatch.setattr(interpreter, "table", lambda: without)
    program = through.legal(Scattered(), (torch.randn(5),), dialect="stablehlo", dynamic_shapes=DIMS)
    with pytest.raises(CannotPad, match=r"along n: aten\.diagonal_scatter"):
        lowering.lower(program, {"n": (8,)})


class Halves(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x[: x.shape[0] // 2].cumsum(0), x.view(2, -1).sum(1)


def test_dims_that_are_derived_are_found_from_those_of_the_call():
    half = Dim("half", min=1, max=8)
    dims = {"x": {0: 2 * half}}
    calls = [(torch.randn(2 * n),) for n in (3, 1, 5, 8)]
    on_xla.check_padded(Halves(), *calls, buckets={"half": (4, 8)}, dynamic_shapes=dims)
    program = through.legal(Halves(), calls[0], dialect="stablehlo", dynamic_shapes=dims)
    with on_xla.load(program, lowering.lower(program, {"half": (8,)})) as runner:
        outputs = list(runner.infer({"x": np.ones(10, np.float32)}).values())
    assert [output.shape for output in outputs] == [(5,), (2,)]


class Chosen(torch.nn.Module):
    """Sizes that depend on data: of outputs, of a state, in a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor | int, ...]:
        kept = x[x[:, 0] > 0]
        self.rows += kept.shape[0]
        head = int(n.item())
        torch._check(head >= 0)
        torch._check(head <= 4)
        return (
            kept,
            kept.shape[0],
            kept.sum(0),
            torch.cat([kept, x, kept]).flip(0),
            (x > 0).nonzero(),
            x[x > 0].sort().values.cumsum(0),
            x[:, :head],
            x[:, head:].sum(1),
            x[:, -head:],
            torch.cat([x[:, head:], x[:, :head]], 1),
            x[:, head - 2 :: 2],
            torch.arange(head) * 2,
            self.rows * 1,
        )


def test_sizes_that_depend_on_data_are_at_most_their_bound():
    x = torch.randn(3, 4)
    calls = [(x, 2), (-x, 0), (-x.abs(), 4), (x.abs(), 1)]
    on_xla.check(Chosen(), *((x, torch.tensor(n)) for x, n in calls))


@pytest.mark.slow
@pytest.mark.parametrize("buckets", [(2, 6), "exact:2,3,5"])
def test_they_go_with_dims_that_vary(buckets: tuple[int, ...] | str):
    sizes = (3, 5, 2) if isinstance(buckets, str) else (3, 5, 6, 2, 4)
    calls = [(torch.randn(size, 4), torch.tensor(size % 5)) for size in sizes]
    dims = {"x": {0: Dim("rows", min=2, max=6)}, "n": None}
    on_xla.check_padded(Chosen(), *calls, buckets={"rows": buckets}, dynamic_shapes=dims)


@pytest.mark.slow
def test_a_size_that_is_larger_than_its_bound_violates_an_assert():
    program = through.legal(Chosen(), (torch.randn(3, 4), torch.tensor(2)), dialect="stablehlo")
    with on_xla.load(program, lowering.lower(program)) as runner, pytest.raises(AssertionViolated):
        runner.infer({"x": np.ones((3, 4), np.float32), "n": np.array(5)})


class InABranch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x[x > 0.5].sum(), lambda x: x.sum(), (x,))


@pytest.mark.slow
def test_a_branch_has_sizes_of_its_own():
    x = torch.randn(4, 5)
    on_xla.check(InABranch(), (x,), (-x,))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scan from the back", "map", "branch", "loop"])
def test_control_flow_sees_true_sizes(name: str):
    check(CASES[name])
