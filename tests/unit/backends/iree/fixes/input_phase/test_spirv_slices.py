"""Slices that SPIR-V programs would read from the wrong place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.fixes.input_phase import spirv_slices
from aotpipe.backends.iree.fixes.rewrites import rewritten
from aotpipe.backends.iree.lower import importer
from aotpipe.core.stages import Lowered
from aotpipe.core.targets import Target
from tests.canaries import canary, load_once_on_vulkan
from tests.programs.mlir_text import ops_at
from tests.programs.through import compare, legal, load_on_vulkan, require_vulkan

VULKAN, METAL = Target.parse("iree-vulkan"), Target.parse("iree-metal")
_SLICE = """\
util.func public @forward(%x: tensor<{2}>, %n: index) -> (tensor<{3}>) {{
  %s = tensor.extract_slice %x[{0}] [{1}] [{4}] : tensor<{2}> to tensor<{3}> loc("model.py":3:0)
  util.return %s : tensor<{3}>
}}
"""


class Model(torch.nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@pytest.mark.parametrize(
    ("offsets", "sizes", "source", "made", "stays"),
    [
        ("0, 4", "8, 8", "8x16xf32", "8x8xf32", True),
        ("0, 1", "8, 8", "8x16xf32", "8x8xf32", False),
        ("0, 8", "8, 8", "8x32xf16", "8x8xf16", True),
        ("0, 4", "8, 8", "8x32xf16", "8x8xf16", False),
        ("0, 1", "8, 8", "8x16xi64", "8x8xi64", False),
        ("0, 16", "8, 8", "8x32xi1", "8x8xi1", True),
        ("0, %n", "8, 8", "8x16xf32", "8x8xf32", False),
        ("1, 0", "7, 4", "8x4xf32", "7x4xf32", True),
        ("1, %n, 0", "1, 4, 4", "2x8x4xf32", "4x4xf32", True),
        ("0, 1, 0", "4, 4, 2", "4x8x2xf32", "4x4x2xf32", False),
        ("3, 0", "%n, 4", "?x4xf32", "?x4xf32", True),
        ("0, 2", "%n, 8", "?x16xf32", "?x8xf32", False),
    ],
)
def test_what_begins_at_a_multiple_of_16_bytes_stays_and_others_are_kept_apart(
    offsets: str, sizes: str, source: str, made: str, stays: bool
) -> None:
    steps = ", ".join(["1"] * len(offsets.split(", ")))
    text = _SLICE.format(offsets, sizes, source, made, steps)
    changed = rewritten(text.encode(), [spirv_slices.FIX.apply])
    assert (changed is None) == stays
    if changed is not None:
        assert changed.count(b"util.optimization_barrier") == 2
        assert changed.count(b"flow.tensor.tie_shape") == source.count("?") + made.count("?")
        assert len(ops_at(changed, '"model.py":3:0')) >= 3


def test_programs_without_them_are_compiled_as_ever() -> None:
    def lowered(function: Callable[..., torch.Tensor]) -> Lowered:
        return importer.lower(legal(Model(function), (torch.ones(8, 16),)))

    within, at_16_bytes = lowered(lambda x: x[:, 1:9] * 2), lowered(lambda x: x[:, 4:12] * 2)
    for target in (VULKAN, METAL):
        assert "--compile-from=input" in compiler.compile(within, target).flags
        assert "--compile-from=input" not in compiler.compile(at_16_bytes, target).flags
    assert "--compile-from=input" not in compiler.compile(within, Target.parse("iree-cuda-sm_80")).flags


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, 1:9] * 2,
        lambda x: x[:, 2:10].sum(-1),
        lambda x: x[:, 3:11] @ x[:, 5:13].T,
        lambda x: x[:, 1:9].softmax(-1),
        lambda x: x.half()[:, 2:14].float(),
        lambda x: x.long()[:, 1:9] * 2,
        lambda x: (x > 0)[:, 1:9].logical_not(),
        lambda x: x.view(-1, 8, 2)[:, 1:5] * 2,
        lambda x: torch.nn.functional.pad(x, (-1, -3)) * 2,
        lambda x: torch.nn.functional.pad(x, (2, 2))[:, 1:17] * x,
        lambda x: x[1:, 1:9:2] * x[:-1, 2:10:2],
        lambda x: x[:, x.shape[0] - 3 : x.shape[0] + 5] * 2,
    ],
)
@pytest.mark.parametrize("varies", [False, True])
def test_they_are_read_where_they_begin(function: Callable[..., torch.Tensor], varies: bool) -> None:
    require_vulkan()
    options: dict[str, Any] = {"dynamic_shapes": ({0: Dim("rows", min=3, max=8)},)} if varies else {}
    model = Model(function).eval()
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    program = legal(model, (x,), **options)
    with load_on_vulkan(program) as runner:
        for rows in (4, 3, 8) if varies else (4,):
            compare(runner, program, model, (torch.randn(rows, 16),))


@canary(spirv_slices.FIX)
def test_iree_reads_them_right_without() -> None:
    require_vulkan()
    model = Model(lambda x: x[:, 1:9] * 2).eval()
    x = torch.arange(128.0).reshape(8, 16)
    program = legal(model, (x,))
    with load_once_on_vulkan(program) as runner:
        compare(runner, program, model, (x,))
