"""Reductions over other dims than the last, and what reads them in SPIR-V programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

from aotpipe.backends.iree.fixes import spirv_reductions
from tests.programs.through import compare, legal, load_on_vulkan

_FUNCTION = """\
  util.func public @forward(%a: tensor<2x3x4xf32>) -> tensor<2x4xf32> {{
    %1{many} = linalg.generic {{iterator_types = [{kinds}]}} ins(%a : tensor<2x3x4xf32>) outs({outs}) {{
    ^bb0(%in: f32 loc(#loc), %out: f32 loc(#loc)):
      linalg.yield %in : f32 loc(#loc)
    }} -> tensor<2x4xf32> loc(#loc)
    %2 = "reads"(%1#0, %1#1) : tensor
  }}
"""
_ONE, _TWO = "%0 : tensor<2x4xf32>", "%0, %9 : tensor<2x4xf32>, tensor<?x4xi64>"


def function(*kinds: str, outs: str = _ONE) -> str:
    quoted = ", ".join(f'"{kind}"' for kind in kinds)
    return _FUNCTION.format(kinds=quoted, outs=outs, many=":2" if outs == _TWO else "")


@pytest.mark.parametrize(
    "kinds",
    [("parallel", "parallel", "parallel"), ("parallel", "reduction"), ("parallel", "reduction", "reduction")],
)
def test_others_stay(kinds: tuple[str, ...]) -> None:
    assert spirv_reductions.apart(function(*kinds)) is None


@pytest.mark.parametrize(
    "kinds", [("parallel", "reduction", "parallel"), ("reduction", "parallel", "reduction")]
)
def test_one_before_a_dim_that_stays_is_kept_apart(kinds: tuple[str, ...]) -> None:
    changed = spirv_reductions.apart(function(*kinds))
    assert changed is not None
    assert "    %apart_1 = linalg.generic" in changed
    assert "    %1 = util.optimization_barrier %apart_1 : tensor<2x4xf32> loc(#loc)" in changed


def test_each_of_several_results_is() -> None:
    changed = spirv_reductions.apart(function("reduction", "parallel", outs=_TWO))
    assert changed is not None
    assert "%apart_1:2 = linalg.generic" in changed
    assert "%part0_1 = util.optimization_barrier %apart_1#0 : tensor<2x4xf32>" in changed
    assert "%size0_part1_1 = tensor.dim %9, %at0_part1_1 : tensor<?x4xi64>" in changed
    assert "%part1_1 = flow.tensor.tie_shape %kept_part1_1 : tensor<?x4xi64>{%size0_part1_1}" in changed
    assert '"reads"(%part0_1, %part1_1)' in changed


class Model(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(1),
        lambda x: x.log_softmax(0),
        lambda x: torch.nn.functional.normalize(x, dim=1),
        lambda x: x - x.mean((0, 2), keepdim=True),
        lambda x: (x - x.amax(2, keepdim=True)).sum(1),
        lambda x: torch.where(x > x.amin((0, 1)), x, 0.0),
        lambda x: x * x.argmax(1, keepdim=True),
        lambda x: x.max(1, keepdim=True).indices + x,
        lambda x: x.permute(3, 1, 0, 2) / x.permute(3, 1, 0, 2).abs().sum((1, 3), keepdim=True),
        lambda x: (x.abs().sum(3).transpose(1, 2) + 1).rsqrt() * x.amax(3).transpose(1, 2),
    ],
)
@pytest.mark.parametrize("varies", [False, True])
def test_what_reads_them_reads_what_they_are(function: Callable[[torch.Tensor], Any], varies: bool) -> None:
    options: dict[str, Any] = {"dynamic_shapes": ({0: Dim("batch", min=1, max=8)},)} if varies else {}
    model, random = Model(function).eval(), torch.Generator().manual_seed(0)
    program = legal(model, (torch.randn(2, 3, 4, 5, generator=random),), **options)
    with load_on_vulkan(program) as runner:
        for batch in (2, 1, 7) if varies else (2,):
            compare(runner, program, model, (torch.randn(batch, 3, 4, 5, generator=random),))
