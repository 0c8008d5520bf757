"""A matrix product per group of rows, against a loop over the groups."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aotpipe.passes.decompositions.blas import grouped_mm, grouped_rows


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(0, 3), st.booleans())
def test_each_row_meets_its_groups_matrix(sizes: list[int], rest: int, half: bool) -> None:
    generator = torch.Generator().manual_seed(sum(sizes))
    dtype = torch.float16 if half else torch.float32
    rows = torch.randn(sum(sizes) + rest, 3, generator=generator).to(dtype)
    weight = torch.randn(len(sizes), 3, 2, generator=generator).to(dtype)
    ends = torch.tensor(sizes).cumsum(0).to(torch.int32)
    want = torch.zeros(len(rows), 2, dtype=dtype)
    start = 0
    for group, end in enumerate(ends.tolist()):
        want[start:end] = rows[start:end] @ weight[group]
        start = end
    got = grouped_rows(rows, weight, ends)
    assert got.dtype is dtype
    torch.testing.assert_close(got, want, rtol=2e-3 if half else 1e-5, atol=2e-3 if half else 1e-6)


def test_other_forms_are_left() -> None:
    three = torch.ones(2, 3, 3)
    assert grouped_mm(three, three) is NotImplemented
    assert grouped_mm(three[0], three, torch.tensor([1, 3]), out_dtype=torch.float64).dtype is torch.float64
