"""Sums in parts: of many elements as exact as torch's, of broadcast factors such as the compiler takes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotpipe.backends.iree.lower import importer
from tests.programs.through import check, legal, load
from tests.sweep import sweep


class Weighted(torch.nn.Module):
    def forward(self, x: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            (x * row).sum(),
            (row.expand_as(x) * x).sum((1, 2)),
            (x * row).mean((0, 2), keepdim=True),
            (x.long() * row.long()).sum((-1, 0)),
            (x * x[0]).sum(),
            (x * row).sum(1),
            (x * row[0]).sum(),
        )


@pytest.mark.slow
def test_program() -> None:
    check(Weighted(), (torch.randn(3, 4, 5), torch.randn(5)))


def test_a_batch_that_may_vary() -> None:
    batch = torch.export.Dim("batch", min=1, max=8)
    x, row = torch.randn(3, 4, 5), torch.randn(5)
    check(Weighted(), (x, row), (torch.randn(7, 4, 5), row), dynamic_shapes={"x": {0: batch}, "row": None})


class Long(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.sum(),
            x.sum((1, 2)),
            x.mean((-1, 1), keepdim=True),
            x.sum(2, dtype=torch.float64),
            x.flatten(1).sum(1, keepdim=True),
            (x > 0).sum(),
            torch.var(x, (1, 2)),
        )


@pytest.mark.parametrize(
    "shape", sweep([*map(pytest.param, [(2, 5, 1024), (3, 32, 64), (2, 3, 1031)])], quick=1)
)
def test_long_sums(shape: tuple[int, ...]) -> None:
    batch = torch.export.Dim("batch", min=1, max=8)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    check(Long(), (x,), (torch.cat([x, -x]),), dynamic_shapes={"x": {0: batch}})


@pytest.mark.parametrize(
    ("shape", "dims"), sweep([((4, 32, 32, 32), (1, 2, 3)), ((3, 2**15), (1,)), ((2**15, 3), (0,))], quick=1)
)
def test_they_are_as_exact_as_eager(shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    class Sum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum(dims)

    x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    program = legal(Sum(), (x,))
    with load(program, importer.lower(program)) as runner:
        [total] = runner.infer({"x": x.numpy()}).values()
    np.testing.assert_allclose(total, x.double().sum(dims).numpy(), rtol=4e-7)
