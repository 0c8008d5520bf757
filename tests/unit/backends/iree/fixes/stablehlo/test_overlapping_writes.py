"""Updates of StableHLO that are made of the array that they update."""

from __future__ import annotations

import copy

import torch

from aotpipe.backends.iree.fixes.stablehlo import overlapping_writes
from aotpipe.backends.iree.lower import stablehlo
from tests.canaries import canary
from tests.programs import through
from tests.unit.backends.iree.lower.test_stablehlo import load


class Shifting(torch.nn.Module):
    """Writes slices of an array into the array."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.arange(6.0))

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.window[1:] = self.window[:-1].clone()
        self.window[0] = x[0]
        return self.window * 1, x.index_copy(0, places, x[:3])


def test_what_is_written_is_read_before() -> None:
    model = Shifting().eval()
    example = (torch.arange(5.0), torch.tensor([1, 2, 3]))
    program = through.legal(copy.deepcopy(model), example, dialect="stablehlo")
    with load(program, stablehlo.lower(program)) as runner:
        for places in ([1, 2, 3], [3, 2, 1]):
            through.compare(runner, program, model, (torch.arange(5.0) + 7, torch.tensor(places)))


@canary(overlapping_writes.FIX)
def test_iree_reads_before_it_writes_without() -> None:
    test_what_is_written_is_read_before()


class Caching(torch.nn.Module):
    """Writes what is not made of the array."""

    def forward(self, x: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return x.index_copy(0, places, rows * 2)


def test_other_updates_have_no_barrier() -> None:
    example = (torch.arange(5.0), torch.arange(2.0), torch.tensor([3, 1]))
    program = through.legal(Caching(), example, dialect="stablehlo")
    assert b"optimization_barrier" not in stablehlo.lower(program).module
    example = (torch.arange(5.0), torch.tensor([1, 2, 3]))
    program = through.legal(Shifting().eval(), example, dialect="stablehlo")
    assert stablehlo.lower(program).module.count(b"optimization_barrier") == 2
