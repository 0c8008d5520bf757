"""Distances and bags: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.programs.through import Together
from tests.unit.backends.iree.decompositions.agree import check_op, decomposed
from tests.unit.passes.legal import Runner, legal

OPS = ["dist", "cdist", "nn_functional_pdist", "nn_functional_embedding_bag"]


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


class Outputs(torch.nn.Module):
    def __init__(self, mode: int, padding: int, last: bool) -> None:
        super().__init__()
        self.options = (False, mode, False, None, last, padding)
        self.register_buffer("rows", torch.arange(21.0).reshape(7, 3).sin())
        self.rows[6, 1] = self.rows[1, 0] = torch.nan

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.ops.aten._embedding_bag(self.rows, indices, offsets, *self.options)


@pytest.mark.parametrize("last", [False, True])
def test_every_output_of_bags(last: bool) -> None:
    model = Together(Outputs(mode, padding, last) for mode in (0, 1, 2) for padding in (-1, 2))
    call = (torch.tensor([2, 1, 6, 2, 0, 3]), torch.tensor([0, 1, 4, 4, 6] if last else [0, 1, 4, 4]))
    with torch.no_grad():
        for got, want in zip(decomposed(model, call).module()(*call), model(*call), strict=True):
            torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [-1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_comes_after_the_last_offset_is_in_the_bags_of_eager(
    mode: int, padding: int, dtype: torch.dtype
) -> None:
    model = Outputs(mode, padding, True).to(dtype)
    call = (torch.tensor([2, 1, 6, 2, 0, 3]), torch.tensor([0, 2, 4]))
    with torch.no_grad():
        got, want = decomposed(model, call).module()(*call)[0], model(*call)[0]
    torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("offsets", [[1, 4, 5], [0, 4, 9]])
def test_offsets_that_eager_refuses_raise(mode: int, offsets: list[int]) -> None:
    call = (torch.tensor([2, 1, 6, 2, 0, 3]), torch.tensor([0, 4, 5]))
    model = Outputs(mode, -1, False)
    with pytest.raises(RuntimeError):
        model(call[0], torch.tensor(offsets))
    run = Runner(legal(model, call))
    run((call[0], torch.tensor(offsets)))
    assert not all(run.asserts.values())


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
