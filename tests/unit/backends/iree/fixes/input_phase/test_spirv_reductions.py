"""Reductions over other dims than the last, and what reads them in SPIR-V programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

from aotpipe.backends.iree.fixes.input_phase import spirv_reductions
from aotpipe.backends.iree.fixes.rewrites import rewritten
from tests.canaries import canary, load_once_on_vulkan
from tests.programs.through import compare, legal, load_on_vulkan, require_vulkan

_MODULE = """\
util.func public @forward(%a: tensor<{sizes}xf32>, %0: {one}, %9: {two}) -> ({one}, {two}) {{
  %1:2 = linalg.generic {{indexing_maps = [affine_map<({dims}) -> ({dims})>, affine_map<({dims}) -> ({kept})>,
      affine_map<({dims}) -> ({kept})>], iterator_types = [{kinds}]}}
      ins(%a : tensor<{sizes}xf32>) outs(%0, %9 : {one}, {two}) {{
  ^bb0(%in: f32, %out: f32, %at: i64):
    linalg.yield %in, %at : f32, i64
  }} -> ({one}, {two})
  util.return %1#0, %1#1 : {one}, {two}
}}
"""


def rewrite(*kinds: str, size: str = "4") -> str | None:
    dims = [f"d{dim}" for dim in range(len(kinds))]
    kept = [dim for dim, kind in zip(dims, kinds, strict=True) if kind == "parallel"]
    text = _MODULE.format(
        sizes="x".join([size] * len(kinds)),
        one=f"tensor<{''.join(f'{size}x' for _ in kept)}f32>",
        two=f"tensor<{''.join(f'{size}x' for _ in kept)}i64>",
        dims=", ".join(dims),
        kept=", ".join(kept),
        kinds=", ".join(f'"{kind}"' for kind in kinds),
    )
    changed = rewritten(text.encode(), [spirv_reductions.FIX.apply])
    return None if changed is None else changed.decode()


@pytest.mark.parametrize(
    "kinds",
    [("parallel", "parallel", "parallel"), ("parallel", "reduction"), ("parallel", "reduction", "reduction")],
)
def test_others_stay(kinds: tuple[str, ...]) -> None:
    assert rewrite(*kinds) is None


@pytest.mark.parametrize(
    "kinds", [("parallel", "reduction", "parallel"), ("reduction", "parallel", "reduction")]
)
def test_each_result_of_one_before_a_dim_that_stays_is_kept_apart(kinds: tuple[str, ...]) -> None:
    changed = rewrite(*kinds)
    assert changed is not None
    assert changed.count("util.optimization_barrier") == 2
    assert "util.return %1#" not in changed


def test_sizes_that_vary_are_told_behind_it() -> None:
    changed = rewrite("reduction", "parallel", size="?")
    assert changed is not None
    assert changed.count("flow.tensor.tie_shape") == 2
    assert changed.count("tensor.dim %arg1") == changed.count("tensor.dim %arg2") == 1


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
    require_vulkan()
    options: dict[str, Any] = {"dynamic_shapes": ({0: Dim("batch", min=1, max=8)},)} if varies else {}
    model, random = Model(function).eval(), torch.Generator().manual_seed(0)
    program = legal(model, (torch.randn(2, 3, 4, 5, generator=random),), **options)
    with load_on_vulkan(program) as runner:
        for batch in (2, 1, 7) if varies else (2,):
            compare(runner, program, model, (torch.randn(batch, 3, 4, 5, generator=random),))


@canary(spirv_reductions.FIX)
def test_iree_computes_them_right_without() -> None:
    require_vulkan()
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    model = Model(lambda x: x.softmax(1)).eval()
    program = legal(model, (x,))
    with load_once_on_vulkan(program) as runner:
        compare(runner, program, model, (x,))
