"""Gathers at several index tensors whose sizes vary, as the compiler takes them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotpipe import Dim
from aotpipe.backends.iree.lower import importer
from aotpipe.errors import AssertionViolated, InputValue
from aotpipe.passes import hops
from tests.programs import through

N = Dim("n", max=8)
TABLE = torch.arange(4.0 * 6 * 2).reshape(4, 6, 2)


class Pairs(torch.nn.Module):
    def forward(self, t, a, b):
        return t[a, b], t.transpose(0, 1)[b, a], t[a, b, torch.ones_like(a)]


class Grid(torch.nn.Module):
    """Indices that are broadcast, and one that picks rows."""

    def forward(self, t, a, b):
        return t[a[:, None], b[None]], t[a]


class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.pairs, self.grid = Pairs(), Grid()

    def forward(self, t, a, b):
        return *self.pairs(t, a, b), *self.grid(t, a, b)


def pairs(*rows: tuple[int, int]) -> tuple[torch.Tensor, ...]:
    return TABLE, torch.tensor([a for a, _ in rows]), torch.tensor([b for _, b in rows])


def test_a_gather_of_any_number_of_places():
    shapes: Any = {"a": {0: N}, "b": {0: N}}
    calls = [pairs((0, 5), (3, 0), (1, -2)), pairs((-1, 2)), pairs(*([(2, 3)] * 8))]
    through.check(Both(), *calls, dynamic_shapes=shapes)


def test_an_index_out_of_range_fails_its_own_assert():
    shapes: Any = {"a": {0: N}, "b": {0: N}}
    program = through.legal(Pairs(), pairs((0, 5), (3, 0), (1, 2)), dynamic_shapes=shapes)
    for graph in hops.walk(program.entries[0].graph):
        for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.index.Tensor):
            assert len(node.args[1]) == 1
    with through.load(program, importer.lower(program)) as runner:
        names = [spec.name for spec in program.entries[0].signature.tensor_inputs]
        # The place of (0, 7) in memory is that of (1, 1).
        with pytest.raises((AssertionViolated, InputValue), match=r"index out of range|'b' has the value 7"):
            runner.infer(dict(zip(names, (each.numpy() for each in pairs((0, 7))), strict=True)))
