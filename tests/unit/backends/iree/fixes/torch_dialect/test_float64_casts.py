"""Casts of float64 to integers, in IREE's portable bytecode."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn
from torch.export import Dim

from aotpipe.backends.iree.fixes.rewrites import rewritten
from aotpipe.backends.iree.fixes.torch_dialect import float64_casts
from aotpipe.backends.iree.lower import importer
from tests.canaries import canary, compile_once
from tests.programs.through import compare, legal, load


class Whole(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.long(), x.clamp(-9, 9).int(), x.clamp(0, 200).to(torch.uint8), x[1, 1].long()


def test_float64_is_cast_to_integers_by_its_bits() -> None:
    wide = [0.0, -0.0, 0.999, -0.999, 1.5, -2.5, 5e-324, 2.0**52 + 1, -(2.0**53) - 2, 2.0**62, -(2.0**63)]
    wide += [4503599627370495.5, 123456789.75, 1e-300, -7e18]
    several, few = (torch.tensor(values, dtype=torch.float64).reshape(-1, 3) for values in (wide, wide[:6]))
    net = Whole().eval()
    program = legal(net, (several,), dynamic_shapes=({0: Dim("rows", min=2, max=9)},))
    lowered = importer.lower(program)
    module = rewritten(lowered.module, [float64_casts.FIX.apply])
    assert module is not None
    assert b"arith.bitcast" in module
    with load(program, replace(lowered, module=module), "vmvx") as runner:
        for x in (several, few):
            compare(runner, program, net, (x,))


class Truncated(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.long()


@canary(float64_casts.FIX)
def test_iree_casts_them_without() -> None:
    program = legal(Truncated(), (torch.ones(3, dtype=torch.float64),))
    compile_once(importer.lower(program), "iree-vmvx")
