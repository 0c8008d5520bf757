"""Bags of equal sizes: which are written as sums over a dim, and what they compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim

from aotpipe.core.stages import Legal
from aotpipe.passes import ops
from tests.unit.passes.legal import check

_ADDED = ops.overloads("index_put scatter_add cumsum")


class Bag(torch.nn.Module):
    def __init__(self, mode: str, padding: int | None = None) -> None:
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(9, 4, mode=mode, padding_idx=padding)

    def forward(self, ids: torch.Tensor, factors: torch.Tensor | None = None) -> torch.Tensor:
        return self.bag(ids, per_sample_weights=factors)


class Offsets(Bag):
    def forward(self, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return self.bag(ids, offsets)


def _is_summed(program: Legal) -> bool:
    return not any(node.target in _ADDED for node in program.entries[0].graph.graph.nodes)


_IDS = torch.randint(0, 9, (5, 3), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("model", "call", "is_summed"),
    [
        (Bag("sum"), (_IDS,), True),
        (Bag("mean"), (_IDS.int(),), True),
        (Bag("sum"), (_IDS, torch.linspace(-1, 1, 15).reshape(5, 3)), True),
        (Bag("sum", padding=2), (_IDS,), False),
        (Offsets("sum"), (_IDS.reshape(-1), torch.arange(0, 15, 3)), False),
    ],
    ids=["sum", "mean", "weighted", "padded", "offsets of a call"],
)
def test_rows_of_equal_bags_are_summed_over_a_dim(
    model: torch.nn.Module, call: tuple[Any, ...], is_summed: bool
) -> None:
    assert _is_summed(check(model, call)) is is_summed


def test_a_batch_that_varies_is_summed_over_a_dim() -> None:
    dims = {"ids": {0: Dim("batch", min=1, max=8)}}
    assert _is_summed(check(Bag("sum"), (_IDS,), (_IDS[:2],), dynamic_shapes=dims))
