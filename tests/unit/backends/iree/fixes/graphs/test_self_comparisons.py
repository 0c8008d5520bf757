"""A NaN differs from itself, also in what is made of that: extrema, medians and orders."""

from __future__ import annotations

import math

import torch

from aotpipe.backends.iree.fixes.graphs import self_comparisons
from tests.canaries import canary
from tests.programs.through import check

X = torch.tensor([1.0, math.nan, math.inf, 0.0, -math.inf])


class Itself(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        copy, viewed, other = x.clone(), x.view(5, 1).view(5), x.flip(0)
        return (
            *(x == x, x >= x, x <= x, x + 1 == x + 1, (x * 2).eq(x * 2), x != x, torch.where(x == x, x, 0.0)),
            *(x == copy, x >= copy, copy <= x, x == viewed, viewed >= x, (x == copy).all(), x == x * 1.0),
            *(x == other, x >= other, x <= other, x * 1.0 >= x, x > x, x < copy),
        )


class Ordered(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        orders = (*x.max(0), *x.min(0), *x.sort(0), *x.cummax(0), x.argmax(0), x.argmin(0))
        return *orders, *x.median(0), *x.nanmedian(0), x.kthvalue(5).values, x[1].softmax(0)


def test_a_nan_differs_from_itself() -> None:
    check(Itself(), (X,))


def test_a_nan_is_the_greatest_number() -> None:
    check(Ordered(), (X,))


@canary(self_comparisons.FIX)
def test_iree_compares_a_nan_with_itself_without() -> None:
    check(Itself(), (X,))
