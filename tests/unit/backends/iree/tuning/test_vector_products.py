"""Products of one row or column and a matrix that each call brings: which become sums, and what they give."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from tests.unit.backends.iree.tuning.test_depthwise_sums import run, tensor

BMM = "aten.bmm.default"


class Forms(nn.Module):
    """A product in each order of the matrix in memory, with the vector on each side."""

    def forward(self, row: Tensor, column: Tensor, matrix: Tensor) -> tuple[Tensor, ...]:
        turned = matrix.transpose(1, 2).contiguous().transpose(1, 2)
        return (
            torch.bmm(row, matrix),
            torch.bmm(row, turned),
            torch.bmm(matrix, column),
            torch.bmm(turned, column),
            torch.bmm(column.transpose(1, 2), matrix.transpose(1, 2)),
        )


def test_each_form() -> None:
    targets = run(Forms(), (tensor(3, 1, 4), tensor(3, 5, 1), tensor(3, 4, 5)))
    assert BMM not in targets
    assert targets.count("aten.sum.dim_IntList") == 5


def test_sizes_that_vary() -> None:
    rows, columns = Dim("rows", min=2, max=64), Dim("columns", min=2, max=64)
    call = (tensor(3, 1, 4), tensor(3, 5, 1), tensor(3, 4, 5))
    other = (tensor(3, 1, 7), tensor(3, 9, 1), tensor(3, 7, 9))
    sizes = ({2: rows}, {1: columns}, {1: rows, 2: columns})
    assert BMM not in run(Forms(), call, other, dynamic_shapes=sizes)


class Weighted(nn.Module):
    """The matrix of each batch is a weight, which is packed once."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(tensor(3, 5, 4))

    def forward(self, row: Tensor) -> Tensor:
        return torch.bmm(row, self.weight.transpose(1, 2))


class Filter(nn.Module):
    """The row of each batch is a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(tensor(3, 1, 4))

    def forward(self, matrix: Tensor) -> Tensor:
        return torch.bmm(self.weight, matrix)


class Rows(nn.Module):
    def forward(self, rows: Tensor, matrix: Tensor) -> Tensor:
        return torch.bmm(rows, matrix)


class Wide(nn.Module):
    """Halves are summed in float32, which a sum of their products would not be."""

    def forward(self, row: Tensor, matrix: Tensor) -> Tensor:
        return torch.bmm(row.half(), matrix.half()).float()


@pytest.mark.parametrize(
    ("module", "call"),
    [
        (Weighted(), (tensor(3, 1, 4),)),
        (Filter(), (tensor(3, 4, 5),)),
        (Rows(), (tensor(3, 2, 4), tensor(3, 4, 5))),
        (Wide(), (tensor(3, 1, 4), tensor(3, 4, 5))),
    ],
    ids=["weight", "row of weights", "several rows", "half"],
)
def test_others_stay_products(module: nn.Module, call: tuple[Tensor, ...]) -> None:
    assert BMM in run(module, call)


class Cached(nn.Module):
    """The keys of the calls so far: a state that is written and read."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 6, 4))

    def forward(self, query: Tensor, at: Tensor) -> Tensor:
        self.keys[:, at] = query
        return torch.bmm(query, self.keys.transpose(1, 2)).softmax(-1)


def test_a_state() -> None:
    assert BMM not in run(Cached(), (tensor(2, 1, 4), torch.tensor([3])))
