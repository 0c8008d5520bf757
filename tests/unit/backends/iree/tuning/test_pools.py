"""Pools of images with the channels last."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aotpipe.backends.iree.tuning import pools
from tests.unit.backends.iree.tuning.test_depthwise_sums import run, tensor


def after(pool: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 20, 3, padding=1), pool).eval()


@pytest.mark.parametrize(
    ("pool", "is_last"),
    [
        (nn.MaxPool2d(2), True),
        (nn.MaxPool2d((3, 2), (2, 3), padding=(1, 1)), True),
        (nn.MaxPool2d(7, 5), True),
        (nn.MaxPool2d(3, 1, dilation=2), False),
        (nn.MaxPool2d(2, return_indices=True), False),
    ],
    ids=["whole", "padded", "one window", "dilated", "places"],
)
def test_the_largest_of_each_window(pool: nn.Module, is_last: bool) -> None:
    x = tensor(2, 3, 8, 9)
    x[0, 0, 2, 2], x[1, 1, 3, 3] = torch.inf, -torch.inf
    targets = run(after(pool), (tensor(2, 3, 8, 9),))
    assert (str(pools.OP) in targets) is is_last


def test_bytecode_computes_it() -> None:
    run(after(nn.MaxPool2d(3, 2, padding=1)), (tensor(1, 3, 7, 7),), backend="vmvx")


def test_the_op_computes_what_a_pool_does() -> None:
    x = tensor(2, 7, 9, 5)
    want = torch.nn.functional.max_pool2d(x.permute(0, 3, 1, 2), (2, 3), (1, 2)).permute(0, 2, 3, 1)
    found = pools.OP(x, (2, 3), (1, 2))
    assert torch.equal(found, want)
    assert pools.OP(x.to("meta"), (2, 3), (1, 2)).shape == found.shape
