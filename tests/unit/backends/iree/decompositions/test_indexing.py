"""Reads and writes at indices, and constants, in the forms that the compiler dies on."""

from __future__ import annotations

import pytest
import torch

from tests.programs.through import check
from tests.sweep import sweep
from tests.unit.backends.iree.decompositions.agree import check_op

aten = torch.ops.aten
OPS = [
    "scatter",
    "scatter_add",
    "gather",
    "index_select",
    "argwhere",
    "index_put",
    "full",
    "arange",
    "diagonal_scatter",
]


INDEXED = [
    "index_add",
    "index_copy",
    "index_fill",
    "take",
    "take_along_dim",
    "masked_fill",
    "nn_functional_embedding",
]


@pytest.mark.parametrize("dtype", sweep(["float32", "int64"], quick=1))
@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=OPS)


@pytest.mark.parametrize("op", INDEXED)
def test_index_tensors_equal_to_eager(op: str) -> None:
    check_op(op, "float32", among=INDEXED)


class Places(torch.nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        zero = index[0, 0] * 0
        return (
            x.scatter(-1, index, x * 2),
            x.scatter(-2, index, 7.0),
            x.scatter_add(-1, index, x),
            x[0, 0].scatter(0, zero, x[1, 1]),
            x[0, 0].gather(0, zero),
            x.index_put((zero, zero + 1), x[1, 1]),
            # Indices of several dtypes, and of int32 beside a dim that is taken whole.
            x[index[0], index[1].int()] + x[:, index[1].int()] + x[index[0].int(), :],
            x.index_put((index[0], index[1].int()), x[0]),
            aten.index_put(x, (None, index[1, :2].int()), x[:, :2], True),
            torch.full((2,), 3, dtype=torch.uint8) + index[0, :2].to(torch.uint8),
            torch.arange(3, dtype=torch.uint8),
            torch.full((3,), 2, dtype=torch.bool) & (x > 0),
            torch.full_like(x, -0.5, dtype=torch.bool) & (x > 0),
            (x > 0).scatter_add(1, index[:, :1].expand(3, 3), x < 9),
            torch.diagonal_scatter(x, x[0, :2], 1),
            torch.diagonal_scatter(x, x[0, :2], -1, 1, 0),
        )


def test_program() -> None:
    check(Places(), (torch.randn(3, 3), torch.tensor([[0, 1, 2], [2, 0, 1], [1, 2, 0]])))


class OneVoxel(torch.nn.Module):
    def forward(self, x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.grid_sample(x, grid, align_corners=False)


def test_a_sample_of_one_voxel_compiles() -> None:
    check(OneVoxel(), (torch.randn(1, 1, 2, 2, 2), torch.rand(1, 1, 1, 1, 3)))


class Apart(torch.nn.Module):
    """Writes at indices between which a dim has none: `u[i, :, j] = v`."""

    def forward(
        self, u: torch.Tensor, i: torch.Tensor, j: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        places = torch.where(u[..., 0] > 0)
        one, two, more = u * 1, u * 2, u * 3
        one[i, :, j] = v
        two[:, i, :, j % 2] = v[:, :1, :1]
        summed = aten.index_put.default(more, [i, None, i], v, True)
        more[places[0], :, places[2]] = v[0, 0]
        return one, two, summed, more


def test_writes_at_indices_that_are_apart() -> None:
    """iree-compile refused each: "failed to legalize operation 'torch.constant.bool'"."""
    i, j = torch.tensor([0, 1, 1]), torch.tensor([2, 0, 2])
    check(Apart(), (torch.randn(2, 2, 3, 2), i, j, torch.randn(3, 2, 2)))
