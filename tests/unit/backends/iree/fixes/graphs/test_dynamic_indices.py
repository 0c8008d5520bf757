"""Several indices of sizes that vary, which IREE's importer does not broadcast."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from aotpipe import Dim
from aotpipe.backends.iree.fixes.graphs import dynamic_indices
from aotpipe.backends.iree.lower import importer
from aotpipe.errors import AssertionViolated, InputValue
from tests.canaries import canary, compile_once
from tests.programs.through import check, legal, load

ROWS, COLUMNS = Dim("rows", min=1, max=9), Dim("columns", min=1, max=9)
SHAPES = {"x": {0: ROWS, 1: COLUMNS}}
CALLS = [(torch.randn(*sizes, 4),) for sizes in ((3, 5), (1, 2), (6, 1))]


N = Dim("n", max=8)
TABLE = torch.arange(4.0 * 6 * 2).reshape(4, 6, 2)


class Ranks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        row = x[0, 0, :].argmax() * 0
        return x[row, torch.arange(x.shape[1]), torch.arange(x.shape[1]) % 4]


class Grid(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape[:2]
        down = torch.arange(rows)[:, None].expand(rows, columns)
        across = torch.arange(columns)[None].expand(rows, columns)
        return x.permute(2, 0, 1)[:, down, across]


class Grids(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        rows, columns = x.shape[:2]
        down = torch.arange(rows)[:, None].expand(rows, columns)
        across = torch.arange(columns)[None].expand(rows, columns)
        return [
            x[down.flip(0), across],
            x.permute(2, 0, 1)[:, down, across.flip(1) - columns],
            x[down[:, :1], :, across % 4],
            x[down, across, (down + across) % 4],
        ]


def test_numbers_are_eagers() -> None:
    check(Ranks(), *CALLS, dynamic_shapes=SHAPES)
    check(Grids(), *CALLS, dynamic_shapes=SHAPES)


class Pairs(nn.Module):
    def forward(self, t, a, b):
        return t[a, b], t.transpose(0, 1)[b, a], t[a, b, torch.ones_like(a)]


class Crossed(nn.Module):
    """Indices that are broadcast, and one that picks rows."""

    def forward(self, t, a, b):
        return t[a[:, None], b[None]], t[a]


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.pairs, self.crossed = Pairs(), Crossed()

    def forward(self, t, a, b):
        return *self.pairs(t, a, b), *self.crossed(t, a, b)


def pairs(*rows: tuple[int, int]) -> tuple[torch.Tensor, ...]:
    return TABLE, torch.tensor([a for a, _ in rows]), torch.tensor([b for _, b in rows])


def test_a_gather_of_any_number_of_places():
    shapes: Any = {"a": {0: N}, "b": {0: N}}
    calls = [pairs((0, 5), (3, 0), (1, -2)), pairs((-1, 2)), pairs(*([(2, 3)] * 8))]
    check(Both(), *calls, dynamic_shapes=shapes)


def test_an_index_out_of_range_fails_its_own_assert():
    shapes: Any = {"a": {0: N}, "b": {0: N}}
    program = legal(Pairs(), pairs((0, 5), (3, 0), (1, 2)), dynamic_shapes=shapes)
    with load(program, importer.lower(program)) as runner:
        names = [spec.name for spec in program.entries[0].signature.tensor_inputs]
        # The place of (0, 7) in memory is that of (1, 1).
        with pytest.raises((AssertionViolated, InputValue), match=r"index out of range|'b' has the value 7"):
            runner.infer(dict(zip(names, (each.numpy() for each in pairs((0, 7))), strict=True)))


@canary(dynamic_indices.FIX)
def test_iree_broadcasts_indices_without() -> None:
    compile_once(importer.lower(legal(Grid(), CALLS[0], dynamic_shapes=SHAPES)), "iree-cpu-host")
