"""Distances and bags: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.programs.through import Together
from tests.unit.backends.iree.decompositions.agree import check_op, decomposed

OPS = ["cdist", "nn_functional_pdist", "nn_functional_embedding_bag"]


@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str) -> None:
    check_op(op, "float32", among=OPS)


class Bags(torch.nn.Module):
    def __init__(self, mode: str, **options: bool) -> None:
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(7, 3, mode=mode, padding_idx=2, **options)

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return self.bag(indices, offsets)


@pytest.mark.parametrize("last", [False, True])
def test_bags_that_are_empty_or_hold_padding(last: bool) -> None:
    model = Together(Bags(mode, include_last_offset=last) for mode in ("sum", "mean", "max"))
    call = (torch.tensor([2, 1, 6, 2, 0, 3]), torch.tensor([0, 1, 4, 4, 6] if last else [0, 1, 4, 4]))
    with torch.no_grad():
        torch.testing.assert_close(decomposed(model, call).module()(*call), model(*call))


class Batch(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return F.batch_norm(x, self.mean, self.var, training=True), self.mean + 0, self.var + 0


def test_statistics_of_a_batch_are_kept() -> None:
    x = torch.randn(5, 4, 3)
    program = decomposed(Batch(), (x,))
    want, got = Batch(), program.module()
    for _ in range(2):
        torch.testing.assert_close(got(x), want(x))
