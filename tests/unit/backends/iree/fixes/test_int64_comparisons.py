"""Signed comparisons of 64 bits that a Vulkan driver would compute wrongly."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from aotpipe.backends.iree.fixes import int64_comparisons
from tests.programs.through import compare, legal, load_on_vulkan

_LEAST, _MOST = -(2**63), 2**63 - 1
_KERNEL = """\
  %r = linalg.generic {{}} ins(%a : tensor<24xi64>) outs(%b : tensor<i1>) {{
  ^bb0(%in: i64, %out: i1):
    %7 = arith.cmpi {} loc("m.py":3:0)
    linalg.yield %7 : i1 loc(#loc1)
  }} -> tensor<i1>
  %8 = arith.cmpi slt, %n, %m : i64
"""


@pytest.mark.parametrize("order", ["lt", "le", "gt", "ge"])
def test_what_kernels_compare_has_its_sign_bits_flipped(order: str) -> None:
    changed = int64_comparisons.unsigned(_KERNEL.format(f"s{order}, %in, %c-24_i64 : i64"))
    assert changed is not None
    assert changed.splitlines()[2:6] == [
        '    %sign_7 = arith.constant -9223372036854775808 : i64 loc("m.py":3:0)',
        '    %left_7 = arith.xori %in, %sign_7 : i64 loc("m.py":3:0)',
        '    %right_7 = arith.xori %c-24_i64, %sign_7 : i64 loc("m.py":3:0)',
        f'    %7 = arith.cmpi u{order}, %left_7, %right_7 : i64 loc("m.py":3:0)',
    ]
    assert "%8 = arith.cmpi slt, %n, %m : i64" in changed, "the host's comparisons stay"


@pytest.mark.parametrize("line", ["eq, %in, %c : i64", "ult, %in, %c : i64", "slt, %in, %c : i32"])
def test_other_comparisons_stay(line: str) -> None:
    assert int64_comparisons.unsigned(_KERNEL.format(line)) is None


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
    model = Counted(test).eval()
    limits = torch.iinfo(dtype)
    x = torch.arange(-12, 12).abs().to(dtype)
    program = legal(model, (x,))
    with load_on_vulkan(program) as runner:
        for values in ([limits.min, limits.max, 12], [0, 2, 3, 13]):
            compare(runner, program, model, (torch.tensor(values, dtype=dtype).repeat(24)[:24],))
