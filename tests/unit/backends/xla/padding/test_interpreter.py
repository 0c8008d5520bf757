"""Graphs on padded values: numbers made of sizes, regions, and what has no rule."""

import pytest
import torch
from torch.export import Dim

from aotpipe.backends.xla import lowering
from aotpipe.errors import CannotPad
from tests.programs import on_xla, through

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


def test_an_op_without_a_rule_is_refused():
    class Scattered(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.diagonal_scatter(torch.zeros(x.shape[0], x.shape[0]), x)

    program = through.legal(Scattered(), (torch.randn(5),), dialect="stablehlo", dynamic_shapes=DIMS)
    with pytest.raises(CannotPad, match=r"along n: aten\.diagonal_scatter"):
        lowering.lower(program, {"n": (8,)})
