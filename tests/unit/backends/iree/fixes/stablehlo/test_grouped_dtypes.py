"""Grouped convolutions of StableHLO that are summed in more bits than they take."""

from __future__ import annotations

import pytest
import torch

from aotpipe.backends.iree.fixes.stablehlo import grouped_dtypes
from aotpipe.backends.iree.lower import stablehlo
from tests.canaries import canary, compile_once
from tests.programs import through
from tests.unit.backends.iree.lower.test_stablehlo import load


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_grouped_convolutions_of_few_bits_are_summed_in_more(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(4, 4, 3, groups=4), torch.nn.Conv2d(4, 8, 3, stride=2, groups=2)
    )
    model = model.to(dtype).eval()
    example = (torch.randn(2, 4, 9, 9).to(dtype),)
    program = through.legal(model, example, dialect="stablehlo")
    with load(program, stablehlo.lower(program)) as runner:
        through.compare(runner, program, model, example)


@canary(grouped_dtypes.FIX)
def test_iree_compiles_them_without() -> None:
    model = torch.nn.Conv2d(8, 8, 3, groups=8).bfloat16().eval()
    program = through.legal(model, (torch.randn(2, 8, 9, 9).bfloat16(),), dialect="stablehlo")
    compile_once(stablehlo.lower(program), "iree-cpu-host")
