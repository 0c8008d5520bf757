"""Attention in all its forms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from aotpipe.passes.decompositions import blas
from tests.unit.passes.legal import check, model


def _tensors(heads: int, key_heads: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, heads, 5, 8), (2, key_heads, 7, 8), (2, key_heads, 7, 4)]
    return [torch.randn(shape, generator=generator) for shape in shapes]


MASK = torch.rand(5, 7, generator=torch.Generator().manual_seed(1)) > 0.4


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"attn_mask": MASK},
        {"attn_mask": torch.where(MASK, 0.0, -torch.inf)},
        {"scale": 0.3},
        {"attn_mask": MASK.expand(2, 1, 5, 7), "scale": 2.0},
    ],
    ids=["plain", "causal", "bool", "added", "scaled", "broadcast"],
)
@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_masks_and_groups(options: dict[str, Any], key_heads: int) -> None:
    tensors = _tensors(4, key_heads)
    got = blas.scaled_dot_product_attention(*tensors, **options, enable_gqa=key_heads != 4)
    want = scaled_dot_product_attention(*tensors, **options, enable_gqa=key_heads != 4)
    torch.testing.assert_close(got, want)


def test_a_row_with_nothing_to_attend_to_gives_zeros() -> None:
    tensors = _tensors(1, 1)
    mask = torch.zeros(5, 7, dtype=torch.bool)
    mask[1:] = True
    got = blas.scaled_dot_product_attention(*tensors, attn_mask=mask)
    assert torch.equal(got[:, :, 0], torch.zeros_like(got[:, :, 0]))
    assert torch.isfinite(got).all()


def test_a_width_that_varies() -> None:
    """The scale fixed the width to the example's, and the program took no other."""
    width = torch.export.Dim("width", min=2, max=9)

    def forward(self: torch.nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(q, k, v)

    calls = [[torch.randn(1, 5, size), torch.randn(1, 5, size), torch.randn(1, 5, 3)] for size in (5, 2, 9)]
    check(model(forward), *calls, dynamic_shapes={"q": {2: width}, "k": {2: width}})
