"""Convolutions of StableHLO whose windows take one place."""

from __future__ import annotations

import pytest
import torch

from aotpipe.backends.iree.fixes.stablehlo import unread_rows
from aotpipe.backends.iree.lower import stablehlo
from tests.canaries import canary, compile_once
from tests.programs import through
from tests.unit.backends.iree.lower.test_stablehlo import load


class Narrow(torch.nn.Module):
    """Convolutions whose windows take one place and leave rows, or padding, unread."""

    def __init__(self) -> None:
        super().__init__()
        self.padded = torch.nn.Conv1d(3, 4, 3, stride=2, padding=1)
        self.cut = torch.nn.Conv1d(3, 4, 2, stride=3)
        self.plane = torch.nn.Conv2d(3, 4, 3, stride=4, padding=1, dilation=(1, 2))
        self.depthwise = torch.nn.Conv1d(3, 3, 1, stride=4, groups=3)

    def forward(self, x: torch.Tensor, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.padded(x), self.cut(x), self.plane(image), self.depthwise(x)


@pytest.mark.parametrize("length", [2, 3])
def test_what_no_window_reads_is_cut_off(length: int) -> None:
    torch.manual_seed(0)
    model = Narrow().eval()
    example = (torch.randn(1, 3, length), torch.randn(2, 3, length, 2 * length - 1))
    program = through.legal(model, example, dialect="stablehlo")
    with load(program, stablehlo.lower(program)) as runner:
        through.compare(runner, program, model, example)


@canary(unread_rows.FIX)
def test_iree_compiles_them_without() -> None:
    program = through.legal(
        torch.nn.Conv1d(3, 4, 2, stride=3).eval(), (torch.randn(1, 3, 3),), dialect="stablehlo"
    )
    compile_once(stablehlo.lower(program), "iree-cpu-host")
