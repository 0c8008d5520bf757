"""Numbers that become 64 bits wide, and the kernels of GPUs that read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.fixes import gpu_widening
from aotpipe.backends.iree.lower import importer
from aotpipe.core.targets import Target
from tests.programs.through import compare, legal, load_on_vulkan

_FUNCTION = """\
  util.func public @forward(%arg0: tensor<{size}x4x{read}>) -> tensor<{size}x4x{wide}> {{
    %1 = linalg.generic {{}} ins(%a : tensor<{size}x4x{read}>) outs(%0 : tensor<{size}x4x{wide}>) {{
    ^bb0(%in: {read} loc(#loc), %out: {wide} loc(#loc)):
      %9 = arith.{op} %in : {read} to {wide} loc(#loc)
      linalg.yield %9 : {wide} loc(#loc)
    }} -> tensor<{size}x4x{wide}> loc(#loc)
    %2 = "reads"(%1{again}) : tensor
    util.return %2
  }}
"""


def function(*, size: str = "8", read: str = "i32", wide: str = "i64", again: str = ", %1") -> str:
    op = {"f": "extf", "i": "extsi"}[read[0]]
    return _FUNCTION.format(size=size, read=read, wide=wide, again=again, op=op)


def test_what_is_read_twice_stands_behind_a_barrier() -> None:
    changed = gpu_widening.apart(function())
    assert changed is not None
    assert "    %apart_1 = linalg.generic" in changed
    assert "    %1 = util.optimization_barrier %apart_1 : tensor<8x4xi64> loc(#loc)" in changed
    assert "tie_shape" not in changed


def test_sizes_that_vary_are_told_behind_it() -> None:
    changed = gpu_widening.apart(function(size="?"))
    assert changed is not None
    assert "%size0_1 = tensor.dim %0, %at0_1 : tensor<?x4xi64> loc(#loc)" in changed
    assert "%1 = flow.tensor.tie_shape %kept_1 : tensor<?x4xi64>{%size0_1} loc(#loc)" in changed


@pytest.mark.parametrize(
    "text",
    [function(again=""), function(wide="i32", read="i16"), function(wide="f32", read="f16")],
)
def test_what_is_read_once_or_stays_narrow_is_left(text: str) -> None:
    assert gpu_widening.apart(text) is None
    assert gpu_widening.apart(text + text) is None, "names are each function's own"


class Model(torch.nn.Module):
    def __init__(self, widened: Callable[[torch.Tensor], torch.Tensor], reduced: Any) -> None:
        super().__init__()
        self.widened, self.reduced = widened, reduced

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wide = self.widened(x)
        return wide + 1, self.reduced(wide)


COUNTED = Model(torch.Tensor.long, lambda x: (x <= 12).sum(0))


@pytest.mark.parametrize("target", ["iree-vulkan", "iree-metal", "iree-cuda-sm_80"])
@pytest.mark.parametrize("model", [COUNTED, Model(lambda x: x.float(), lambda x: x.sort()[1])])
def test_long_rows_are_compiled_by_the_fast_flags(target: str, model: Model) -> None:
    x = torch.arange(8000, dtype=torch.int32)
    assert compiler.compile(importer.lower(legal(model, (x,))), Target.parse(target)).notes == ()


@pytest.mark.parametrize("varies", [False, True])
@pytest.mark.parametrize(
    "model",
    [
        COUNTED,
        Model(torch.Tensor.long, lambda x: x.sum(0)),
        Model(torch.Tensor.long, lambda x: x.argmax(0)),
        Model(torch.Tensor.double, lambda x: x.sum(0)),
        Model(lambda x: x > 3, lambda x: x.long().sum(0) + x.long()),
    ],
)
def test_they_are_what_they_are(model: Model, varies: bool) -> None:
    options: dict[str, Any] = {"dynamic_shapes": ({0: Dim("rows", min=3, max=8000)},)} if varies else {}
    x = torch.arange(8000, dtype=torch.int32)
    program = legal(model, (x,), **options)
    with load_on_vulkan(program) as runner:
        for rows in (8000, 3, 24) if varies else (8000,):
            compare(runner, program, model.eval(), (torch.arange(rows, dtype=torch.int32).flip(0),))
