"""Values without repeats, their places and counts, by both backends: as many as only the data decides."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from aotpipe import Dim
from tests.programs import on_xla, through
from tests.sweep import sweep

BACKENDS = pytest.mark.parametrize("backend", ["iree", "xla"])
FLOATS = [
    [3.0, 1.0, 1.0, math.nan, 3.0, math.nan],
    [],
    [2.0],
    [-0.0, 0.0, -0.0],
    [1.0] * 9,
    [5.0, 4.0, 4.0, -math.inf],
]
SIZES = {"buckets": {"n": (6, 9)}, "dynamic_shapes": {"x": {0: Dim("n", min=0, max=9)}}}


class Sorted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.unique(x, return_inverse=True, return_counts=True)


class Consecutive(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.unique_consecutive(x, return_inverse=True, return_counts=True)


class SortedRows(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.unique(x, dim=0, return_inverse=True, return_counts=True)


class ConsecutiveColumns(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.unique_consecutive(x.T, dim=1, return_counts=True)


def check(backend: str, module: torch.nn.Module, tensors: list[torch.Tensor], **options: Any) -> None:
    calls = [(x,) for x in tensors]
    if backend == "iree":
        options.pop("buckets", None)
        through.check(module, *calls, **options)
    else:
        on_xla.check(module, *calls, **options)


@BACKENDS
@pytest.mark.parametrize("module", [Sorted, Consecutive])
def test_floats(backend: str, module: type[torch.nn.Module]) -> None:
    check(backend, module(), [torch.tensor(x) for x in FLOATS], **SIZES)


@BACKENDS
@pytest.mark.parametrize("dtype", sweep([torch.int64, torch.bool], quick=1))
def test_whole_numbers(backend: str, dtype: torch.dtype) -> None:
    least = -(2**62) if dtype is torch.int64 else 0
    tensors = [torch.tensor(x).nan_to_num(0, 3, 2).long() + least for x in FLOATS]
    check(backend, Sorted(), [x.to(dtype) for x in tensors], **SIZES)


@BACKENDS
@pytest.mark.parametrize("module", sweep([SortedRows, ConsecutiveColumns], quick=1))
def test_slices_along_a_dim(backend: str, module: type[torch.nn.Module]) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randint(0, 2, (size, 3), generator=generator).float() for size in (6, 1, 9)]
    check(backend, module(), tensors, **SIZES)


@BACKENDS
@pytest.mark.parametrize("shape", sweep([[], [0, 3], [1], [2, 2]], quick=1), ids=str)
def test_fixed_sizes(backend: str, shape: list[int]) -> None:
    check(backend, Sorted(), [torch.ones(shape)])


def test_rows_that_hold_nan_fail_an_assert() -> None:
    x = torch.zeros(3, 2)
    program = through.legal(SortedRows(), (x,))
    assert any("compared holds NaN" in text for text in program.entries[0].asserts)
