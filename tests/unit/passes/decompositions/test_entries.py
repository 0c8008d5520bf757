"""What decompositions share."""

from __future__ import annotations

import pytest
import torch

from aotpipe.passes.decompositions import entries


@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("dim", [0, -1])
def test_a_dim_goes_last_and_back(shape: tuple[int, ...], dim: int) -> None:
    x = torch.randn(shape)
    moved = entries.last(x, dim)
    assert moved.dim() == max(x.dim(), 1)
    assert torch.equal(entries.back(moved, dim, x), x)


@pytest.mark.parametrize("shape", [(), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("keepdim", [True, False])
def test_a_reduction_has_the_form_of_one_of_the_original(shape: tuple[int, ...], keepdim: bool) -> None:
    x = torch.randn(shape)
    got = entries.reduced(entries.last(x, -1).sum(-1), -1, keepdim, x)
    assert torch.equal(got, x.sum(-1, keepdim=keepdim))


def test_dtypes_that_eager_computes_in() -> None:
    assert entries.wide(torch.bfloat16) is torch.float32
    assert entries.wide(torch.float64) is torch.float64
    assert entries.floating(torch.tensor([1])).dtype is torch.get_default_dtype()
    half, whole = entries.widened(torch.ones(1, dtype=torch.float16), torch.ones(1, dtype=torch.int64))
    assert (half.dtype, whole.dtype) == (torch.float32, torch.int64)


def test_sizes() -> None:
    assert entries.empty(torch.ones(2, 0))
    assert not entries.empty(torch.ones(2), torch.ones(()))
    assert torch.equal(entries.iota(3, torch.ones(1)), torch.arange(3))
