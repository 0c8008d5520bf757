"""Sorts and selections as the compiler takes it: equal to eager on torch's own samples."""

from __future__ import annotations

import math

import pytest
import torch
from torch.export import Dim

from tests.programs import on_xla, through
from tests.unit.backends.iree.decompositions.agree import check_op

OPS = [
    "aminmax",
    "kthvalue",
    "median",
    "nanmedian",
    "mode",
    "unique_consecutive",
    "searchsorted",
    "bucketize",
]


@pytest.mark.parametrize("dtype", ["float32"])
@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=OPS)


class Truths(torch.nn.Module):
    """What torch.distributions validates by."""

    def forward(self, x: torch.Tensor, one: torch.Tensor) -> tuple[torch.Tensor, ...]:
        each = (x > 0, one > 0, x[:0] > 0)
        return tuple(test(flags) for flags in each for test in (torch._is_all_true, torch._is_any_true))


@pytest.mark.parametrize("backend", ["iree", "xla"])
def test_all_or_any_of_a_tensor(backend: str) -> None:
    calls = [(torch.tensor(x), torch.tensor(x[0])) for x in ([1.0, 2.0], [math.nan, 1.0], [-1.0] * 4)]
    options = {"dynamic_shapes": {"x": {0: Dim("n", min=1, max=4)}, "one": {}}}
    if backend == "iree":
        through.check(Truths(), *calls, **options)
    else:
        on_xla.check_padded(Truths(), *calls, buckets={"n": (4,)}, **options)
