"""Products that take a column: with data tiling their numbers were wrong, without a word."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import fx, nn

from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.fixes.graphs import column_products
from aotpipe.backends.iree.lower import importer
from aotpipe.core.targets import Target
from aotpipe.model.torch_arrays import view_numpy
from aotpipe.runtime.iree import runtime
from tests.canaries import canary
from tests.programs.through import Together, compare, legal

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
COLUMNS: list[Product] = [
    lambda x, weight: weight[:, 1] @ x,
    lambda x, weight: x.t() @ weight[:, 2:],
    lambda x, weight: x[:, 1].view(1, -1) @ weight,
    lambda x, weight: (weight + 1).flip(0)[:, 1] @ x,
    lambda x, weight: x[:, :1].t().unsqueeze(0) @ weight.expand(1, -1, -1),
]
OTHERS: list[Product] = [
    lambda x, weight: weight.t()[:1].clone() @ x,
    lambda x, weight: weight[:, 1:].t() @ x,
    lambda x, weight: x.t()[:, :32] @ weight,
    lambda x, weight: weight[:1] @ x[:3],
]


class Net(nn.Module):
    def __init__(self, product: Product) -> None:
        super().__init__()
        self.product = product
        self.weight = nn.Parameter(torch.randn(32, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(x, self.weight)


def taken_apart(product: Product) -> list[fx.Node]:
    [entry] = legal(Net(product), (torch.randn(32, 20),)).entries
    return [source for node in entry.graph.graph.nodes for source in column_products.own_buffers(node)]


@pytest.mark.parametrize("product", COLUMNS)
def test_a_column_gets_a_buffer(product: Product) -> None:
    assert len(taken_apart(product)) == 1


@pytest.mark.parametrize("product", OTHERS[1:])
def test_others_do_not(product: Product) -> None:
    assert not taken_apart(product)


def test_numbers_of_one_program_are_eagers() -> None:
    run(Together(Net(product) for product in [*COLUMNS, *OTHERS]), torch.randn(32, 20))


@pytest.mark.slow
@pytest.mark.parametrize("product", [*COLUMNS, *OTHERS])
def test_numbers_are_eagers(product: Product) -> None:
    run(Net(product), torch.randn(32, 20))


def run(net: nn.Module, x: torch.Tensor) -> None:
    program = legal(net.eval(), (x,))
    compiled = compiler.compile(importer.lower(program), Target.parse("iree-cpu-host"))
    with runtime.load(
        compiled.payload,
        signatures={entry.name: entry.signature for entry in program.entries},
        weights={key: view_numpy(value) for key, value in program.weights.items()},
        initial_state={},
        driver="local-sync",
        asserts={entry.name: entry.asserts for entry in program.entries},
    ) as runner:
        compare(runner, program, net, (x,))


@canary(column_products.FIX)
def test_iree_reads_columns_right_without() -> None:
    torch.manual_seed(0)
    run(Net(COLUMNS[0]), torch.randn(3, 20))
