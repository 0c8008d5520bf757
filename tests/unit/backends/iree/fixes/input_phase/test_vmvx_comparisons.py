"""Comparisons of NaN by IREE's bytecode."""

from __future__ import annotations

import torch

from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.fixes.input_phase import vmvx_comparisons
from aotpipe.core.targets import Target
from tests.canaries import canary
from tests.programs.through import compare, importer, legal, load_payload

NAN = float("nan")
X = torch.tensor([[1.0, NAN, 3.0], [NAN, NAN, -1.0], [0.0, 5.0, 2.0]])


class Compared(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        other = (y.isnan(), x >= y, x > y, x <= y, x == y, x != y, y >= 1, y != 1)
        return [x != x, x.isnan(), (x + 0) != x, x.argmax(1), *x.max(1), x.sort(1).indices, *other]


def agrees() -> None:
    program = legal(Compared(), (X, X.t().double()))
    made = compiler.compile(importer.lower(program), Target.parse("iree-vmvx"))
    with load_payload(program, made.payload, "local-sync") as runner:
        compare(runner, program, Compared(), (X, X.t().double()))


def test_they_are_eagers() -> None:
    agrees()


@canary(vmvx_comparisons.FIX)
def test_the_bytecode_sees_nans_without() -> None:
    agrees()
