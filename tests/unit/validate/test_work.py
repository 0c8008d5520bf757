"""Arithmetic is counted from the graph, for any sizes."""

from __future__ import annotations

import torch

from aotpipe import Dim
from aotpipe.validate.work import work
from tests.programs.through import legal

BATCH = Dim("batch", min=1, max=64)
TIME = Dim("time", min=1, max=64)


class Product(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(16, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def test_a_product_counts_what_it_sums_over() -> None:
    [entry] = legal(Product(), (torch.zeros(3, 16),), dynamic_shapes={"x": {0: BATCH}}).entries
    at = work(entry)
    assert at({"batch": 3}) == 3 * 16 * 32
    assert at({"batch": 64}) == 64 * 16 * 32


def test_what_the_memory_moves_counts_beside_products() -> None:
    [entry] = legal(Product(), (torch.zeros(3, 16),), dynamic_shapes={"x": {0: BATCH}}).entries
    assert work(entry, of_moved=10)({"batch": 3}) == 3 * 16 * 32 + 10 * 16 * 32
    [entry] = legal(torch.nn.ReLU(), (torch.zeros(3, 16),)).entries
    assert work(entry, of_moved=10)({}) == 3 * 16 * (1 + 10)


def test_a_derived_size_is_solved_for() -> None:
    [entry] = legal(Product(), (torch.zeros(6, 16),), dynamic_shapes={"x": {0: 2 * BATCH}}).entries
    assert work(entry)({"batch": 5}) == 10 * 16 * 32


def test_attention_grows_with_the_square_of_time() -> None:
    class Attention(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    shapes = {"x": {0: BATCH, 2: TIME}}
    [entry] = legal(Attention(), (torch.zeros(2, 4, 8, 64),), dynamic_shapes=shapes).entries
    at = work(entry)
    assert 1.9 < at({"batch": 4, "time": 8}) / at({"batch": 2, "time": 8}) < 2.1
    assert 3.2 < at({"batch": 2, "time": 64}) / at({"batch": 2, "time": 32}) < 4.1


def test_a_loop_counts_each_trip() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.GRU(16, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)[0]

    [entry] = legal(Model(), (torch.zeros(5, 2, 16),), dynamic_shapes={"x": {0: TIME}}).entries
    at = work(entry)
    assert at({"time": 64}) > 64 * 2 * 3 * 32 * (16 + 32)
    assert 1.9 < at({"time": 64}) / at({"time": 32}) < 2.1
