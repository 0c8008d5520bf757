"""Signed comparisons of 64 bits that a Vulkan driver would compute wrongly."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from aotpipe.backends.iree.fixes.input_phase import gpu_widening, int64_comparisons
from aotpipe.backends.iree.fixes.rewrites import rewritten
from tests.canaries import canary, load_once_on_vulkan
from tests.programs.through import compare, legal, load_on_vulkan, require_vulkan

_LEAST, _MOST = -(2**63), 2**63 - 1
_MODULE = """\
util.func public @forward(%a: tensor<24x{type}>, %b: tensor<24xi1>, %n: i64) -> (tensor<24xi1>, i1) {{
  %c = arith.constant -24 : {type}
  %r = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]}} ins(%a : tensor<24x{type}>) outs(%b : tensor<24xi1>) {{
  ^bb0(%in: {type}, %out: i1):
    %7 = arith.cmpi {order}, %in, %c : {type} loc("m.py":3:0)
    linalg.yield %7 : i1
  }} -> tensor<24xi1>
  %8 = arith.cmpi slt, %n, %n : i64
  util.return %r, %8 : tensor<24xi1>, i1
}}
"""


def rewrite(order: str, type_: str = "i64") -> str | None:
    text = _MODULE.format(order=order, type=type_)
    changed = rewritten(text.encode(), [int64_comparisons.FIX.apply])
    return None if changed is None else changed.decode()


@pytest.mark.parametrize("order", ["lt", "le", "gt", "ge"])
def test_what_kernels_compare_has_its_sign_bits_flipped(order: str) -> None:
    changed = rewrite(f"s{order}")
    assert changed is not None
    assert changed.count("arith.xori") == 2
    assert f"arith.cmpi u{order}" in changed
    assert "arith.cmpi slt, %arg2, %arg2 : i64" in changed, "the host's comparisons stay"


@pytest.mark.parametrize("given", [("eq", "i64"), ("ult", "i64"), ("slt", "i32")])
def test_other_comparisons_stay(given: tuple[str, str]) -> None:
    assert rewrite(*given) is None


class Counted(torch.nn.Module):
    """Integers that are widened once and used twice, which the compiler keeps in a kernel's memory."""

    def __init__(self, test: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.test = test

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wide = x.long()
        return wide + 1, self.test(wide).sum(-1)


@pytest.mark.parametrize(
    "test",
    [
        lambda x: x <= 12,
        lambda x: x < -3,
        lambda x: x > 0,
        lambda x: x >= 2**31,
        lambda x: x > -(2**40),
        lambda x: (x >= _LEAST) & (x < _MOST),
        lambda x: torch.where(x <= 12, x, 0),
        lambda x: x.argsort(-1, descending=True),
    ],
)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_they_are_true_where_they_are(
    test: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    require_vulkan()
    model = Counted(test).eval()
    limits = torch.iinfo(dtype)
    x = torch.arange(-12, 12).abs().to(dtype)
    program = legal(model, (x,))
    with load_on_vulkan(program) as runner:
        for values in ([limits.min, limits.max, 12], [0, 2, 3, 13]):
            compare(runner, program, model, (torch.tensor(values, dtype=dtype).repeat(24)[:24],))


@canary(int64_comparisons.FIX, gpu_widening.FIX)
def test_the_driver_compares_them_right_without() -> None:
    """Only Mesa 22.3 has the fault; on another Vulkan device this says that it has not."""
    require_vulkan()
    model = Counted(lambda x: x <= 12).eval()
    x = torch.arange(24, dtype=torch.int32)
    program = legal(model, (x,))
    with load_once_on_vulkan(program) as runner:
        compare(runner, program, model, (x,))
