"""Embedding bags are computed by one dispatch, with eager's results."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from aotpipe import Dim
from aotpipe.backends.iree.lower import importer
from tests.programs import with_kernels
from tests.programs.through import legal
from tests.unit.backends.iree.tuning.test_depthwise_sums import run, tensor


class Bag(nn.Module):
    """A bag of each mode, or of one."""

    def __init__(self, *modes: str, width: int = 16, **options: Any) -> None:
        super().__init__()
        self.bags = nn.ModuleList(
            nn.EmbeddingBag.from_pretrained(tensor(9, width), mode=mode, **options) for mode in modes
        )

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor) -> list[torch.Tensor]:
        return [bag(indices, offsets) for bag in self.bags]


def call(count: int, *offsets: int, dtype: torch.dtype = torch.int64) -> tuple[torch.Tensor, torch.Tensor]:
    return (torch.arange(count) * 5 % 9).to(dtype), torch.tensor(offsets).to(dtype)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("ends", [False, True])
def test_any_number_of_bags_and_indices(ends: bool, dtype: torch.dtype) -> None:
    bags, count = Dim("bags", min=2, max=70), Dim("count", min=0, max=100)
    calls = [
        call(12, 0, 3, 3, 9, dtype=dtype),
        call(12, 0, 12, dtype=dtype),
        call(2, 0, 1, 2, 2, dtype=dtype),
        call(100, 0, *range(7, 70), dtype=dtype),
    ]
    run(Bag("sum", "mean", include_last_offset=ends), *calls, dynamic_shapes=({0: count}, {0: bags}))


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (Bag("sum", "mean"), 2),
        (Bag("mean", include_last_offset=True), 1),
        (Bag("max"), 0),
        (Bag("sum", width=6), 0),
        (Bag("sum", padding_idx=2), 0),
        (Bag("sum").double(), 0),
        (Bag("sum").half(), 0),
    ],
)
def test_which_are_ours(model: Bag, count: int) -> None:
    module = importer.lower(legal(model, call(12, 0, 3, 3, 9))).module
    assert with_kernels(module, "llvm-cpu").count(b"flow.executable private @sum_bags") == count
    assert b"sum_bags" not in with_kernels(module, "vmvx")


def test_weighted_bags_are_not_ours() -> None:
    class Weighted(nn.Module):
        def forward(self, table: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
            indices, offsets = call(12, 0, 3, 3, 9)
            return nn.functional.embedding_bag(
                indices, table, offsets, mode="sum", per_sample_weights=weights
            )

    module = importer.lower(legal(Weighted(), (tensor(9, 16), tensor(12)))).module
    assert b"sum_bags" not in with_kernels(module, "llvm-cpu")
