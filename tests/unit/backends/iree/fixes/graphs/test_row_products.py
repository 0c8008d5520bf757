"""One row times a matrix whose columns vary in number: the padding of the columns was counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.fixes.graphs import row_products
from aotpipe.backends.iree.lower import importer
from aotpipe.core.dims import AUTO
from aotpipe.core.targets import Target
from tests.canaries import canary
from tests.programs.through import compare, legal, load_payload

Product = Callable[[torch.Tensor, torch.Tensor], Any]
SIZES = [(3, 7), (5, 1), (1, 1), (40, 50)]
ROWS: list[Product] = [
    lambda x, w: x @ w,
    lambda x, w: (x @ w).exp().sum(),
    lambda x, w: (x[None] @ w).softmax(1),
    lambda x, w: torch.addmm(w[:1], x[None], w).exp().sum(1),
    lambda x, w: (x[None] @ w.flip(1)).exp().sum(1),
    lambda x, w: (x.to(torch.int8)[None].int() @ (w * 9).int()).abs().sum(),
    lambda x, w: torch.cond(x[0] > 0, lambda y: y + 1, lambda y: y * 2, (x,)) @ w,
]


class Net(torch.nn.Module):
    def __init__(self, product: Product) -> None:
        super().__init__()
        self.product = product

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> Any:
        return self.product(x, w)


def run(net: torch.nn.Module) -> None:
    """As a build compiles it: with data tiling."""
    calls = [(torch.randn(rows), torch.randn(rows, columns)) for rows, columns in SIZES]
    shapes = {"x": {0: AUTO}, "w": {0: AUTO, 1: AUTO}}
    program = legal(net, calls[0], dynamic_shapes=shapes)
    payload = compiler.compile(importer.lower(program), Target.parse("iree-cpu-host")).payload
    with load_payload(program, payload, "local-sync") as runner:
        for call in calls:
            compare(runner, program, net, call)


def test_a_row_times_as_many_columns_as_vary() -> None:
    run(Net(lambda x, w: [product(x, w) for product in ROWS]))


@pytest.mark.slow
@pytest.mark.parametrize("product", ROWS)
def test_each_of_them(product: Product) -> None:
    run(Net(product))


@canary(row_products.FIX)
def test_iree_counts_no_padding_without() -> None:
    run(Net(ROWS[1]))
