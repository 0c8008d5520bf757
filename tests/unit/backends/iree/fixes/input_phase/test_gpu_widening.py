"""Numbers that become 64 bits wide, and the kernels of GPUs that read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.fixes.input_phase import gpu_widening
from aotpipe.backends.iree.fixes.rewrites import rewritten
from aotpipe.backends.iree.lower import importer
from aotpipe.core.targets import Target
from tests.canaries import canary, compile_once
from tests.programs.mlir_text import ops_at
from tests.programs.through import compare, legal, load_on_vulkan, require_vulkan
from tests.sweep import sweep

_MODULE = """\
util.func public @forward(%a: tensor<{size}x4x{read}>, %0: tensor<{size}x4x{wide}>)
    -> (tensor<{size}x4x{wide}>) {{
  %c0 = arith.constant 0 : index
  %1 = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}}
      ins(%a : tensor<{size}x4x{read}>) outs(%0 : tensor<{size}x4x{wide}>) {{
  ^bb0(%in: {read}, %out: {wide}):
    %9 = arith.{op} %in : {read} to {wide}
    linalg.yield %9 : {wide}
  }} -> tensor<{size}x4x{wide}> loc("model.py":3:0)
  %size = tensor.dim %1, %c0 : tensor<{size}x4x{wide}>
  %2 = arith.addi %1, %{other} : tensor<{size}x4x{wide}>
  util.return %2 : tensor<{size}x4x{wide}>
}}
"""


def rewrite(*, size: str = "8", read: str = "i32", wide: str = "i64", other: str = "1") -> str | None:
    op = {"f": "extf", "i": "extsi"}[read[0]]
    text = _MODULE.format(size=size, read=read, wide=wide, other=other, op=op)
    text = text.replace("arith.addi", "arith.addf") if wide[0] == "f" else text
    changed = rewritten(text.encode(), [gpu_widening.FIX.apply])
    return None if changed is None else changed.decode()


def test_what_is_read_twice_stands_behind_a_barrier() -> None:
    changed = rewrite()
    assert changed is not None
    assert "%1 = util.optimization_barrier %0 : tensor<8x4xi64>" in "\n".join(
        ops_at(changed.encode(), '"model.py":3:0')
    )
    assert "arith.addi %1, %1" in changed
    assert "tie_shape" not in changed


def test_sizes_that_vary_are_told_behind_it() -> None:
    changed = rewrite(size="?")
    assert changed is not None
    assert "flow.tensor.tie_shape" in changed
    assert "tensor.dim %arg1" in changed


@pytest.mark.parametrize(
    "given", [{"other": "0"}, {"wide": "i32", "read": "i16"}, {"wide": "f32", "read": "f16"}]
)
def test_what_is_read_once_or_stays_narrow_is_left(given: dict[str, str]) -> None:
    assert rewrite(**given) is None


class Model(torch.nn.Module):
    def __init__(self, widened: Callable[[torch.Tensor], torch.Tensor], reduced: Any) -> None:
        super().__init__()
        self.widened, self.reduced = widened, reduced

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wide = self.widened(x)
        return wide + 1, self.reduced(wide)


COUNTED = Model(torch.Tensor.long, lambda x: (x <= 12).sum(0))


@pytest.mark.parametrize("target", sweep(["iree-vulkan", "iree-metal", "iree-cuda-sm_80"], quick=1))
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
    require_vulkan()
    options: dict[str, Any] = {"dynamic_shapes": ({0: Dim("rows", min=3, max=8000)},)} if varies else {}
    x = torch.arange(8000, dtype=torch.int32)
    program = legal(model, (x,), **options)
    with load_on_vulkan(program) as runner:
        for rows in (8000, 3, 24) if varies else (8000,):
            compare(runner, program, model.eval(), (torch.arange(rows, dtype=torch.int32).flip(0),))


@canary(gpu_widening.FIX)
def test_iree_compiles_it_without() -> None:
    compile_once(importer.lower(legal(COUNTED, (torch.arange(8000, dtype=torch.int32),))), "iree-vulkan")
