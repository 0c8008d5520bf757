"""Reductions as the compiler takes it: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest
import torch

from aotpipe.model.spec import Dim
from tests.programs.through import check
from tests.unit.backends.iree.decompositions.agree import check_op

OPS = [
    "sum",
    "mean",
    "amax",
    "amin",
    "max_reduction_with_dim",
    "min_reduction_no_dim",
    "argmax",
    "argmin",
    "any",
    "all",
    "prod",
    "var",
    "std",
    "var_mean",
    "softmax",
    "log_softmax",
    "logsumexp",
]


@pytest.mark.parametrize("dtype", ["float32"])
@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=OPS)


class Narrow(torch.nn.Module):
    """Sums and products in a dtype that is not int64, of another one: as masks are counted."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mask, whole = x > 0, (x * 90).to(torch.int32)
        dtypes = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.bool, torch.float16, torch.float32)
        return (
            *(mask.sum(-1, dtype=dtype) for dtype in dtypes),
            *(whole.sum((0, 1), dtype=dtype) for dtype in dtypes[:5]),
            *(whole.prod(-1, dtype=dtype) for dtype in dtypes[:5]),
            mask.prod(0, dtype=torch.int32),
            mask.sum(dtype=torch.int32),
        )


def test_sums_of_another_dtype() -> None:
    check(Narrow(), (torch.randn(3, 5, generator=torch.Generator().manual_seed(0)),))


def test_any_and_all_of_no_elements() -> None:
    """Over a size that varies, `any` of no element was true, and `all` false."""

    class Found(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            large = x > 5
            return large.any(), large.all(), large.any(0), large.all(0), x.any(0)

    sizes = ({0: Dim("n", min=0, max=9)},)
    check(
        Found(), (torch.randn(4, 3),), (torch.zeros(0, 3),), (torch.full((2, 3), 6.0),), dynamic_shapes=sizes
    )


class Remaining(torch.nn.Module):
    """Elements of which a tensor decides how many there are: there may be none."""

    def forward(self, x: torch.Tensor, times: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left = times[(x > 0).sum() :]
        return (x[0] >= left).any(), (x[0] < left).all()


def test_any_and_all_of_elements_that_a_tensor_counts() -> None:
    """The program refused each call that leaves none: an assert of the maximum was kept."""
    times = torch.linspace(0, 1, 3)
    check(Remaining(), (torch.tensor([0.5, -1.0, 2.0]), times), (torch.ones(3), times))
