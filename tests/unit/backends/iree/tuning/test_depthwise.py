"""Depthwise convolutions with the channels last: which take this form, and what they compute."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aotpipe.backends.iree.tuning import depthwise
from tests.unit.backends.iree.tuning.test_depthwise_sums import run, tensor


@pytest.mark.parametrize(
    ("module", "size", "is_last"),
    [
        (nn.Conv2d(24, 24, 7, padding=3, groups=24), (2, 24, 9, 8), True),
        (nn.Conv2d(32, 32, (3, 5), (2, 3), padding=(0, 2), groups=32, bias=False), (1, 32, 12, 11), True),
        (nn.Conv2d(16, 16, 3, 2, padding=1, groups=16), (1, 16, 2, 4), True),
        (nn.Conv2d(16, 32, 3, groups=16), (1, 16, 7, 7), False),
        (nn.Conv2d(16, 16, 3, dilation=2, groups=16), (1, 16, 9, 9), False),
        (nn.Conv2d(4, 4, 3, groups=4), (1, 4, 7, 7), False),
        (nn.Conv1d(16, 16, 3, groups=16), (1, 16, 9), False),
    ],
    ids=["filled up", "strided", "one window", "several outputs", "dilated", "few channels", "line"],
)
def test_images_are_convolved_with_the_channels_last(
    module: nn.Module, size: tuple[int, ...], is_last: bool
) -> None:
    targets = run(module.eval(), (tensor(*size),))
    assert (str(depthwise.OP) in targets) is is_last


def test_bytecode_computes_what_a_convolution_does() -> None:
    run(nn.Conv2d(16, 16, 3, groups=16), (tensor(1, 16, 5, 5),), backend="vmvx")


def test_it_computes_what_a_convolution_does() -> None:
    x, weight = tensor(1, 6, 7, 16), tensor(3, 2, 16)
    wanted = torch.conv2d(x.permute(0, 3, 1, 2), weight.permute(2, 0, 1).unsqueeze(1), None, 2, groups=16)
    found = depthwise.OP(x, weight, [2, 2])
    torch.testing.assert_close(found, wanted.permute(0, 2, 3, 1))
    assert depthwise.OP(x.to("meta"), weight.to("meta"), [2, 2]).shape == found.shape
