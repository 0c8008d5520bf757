"""Casts of float64 to integers, in IREE's portable bytecode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
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


class Narrow(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float()


def test_float64_is_cast_to_float32_by_its_bits() -> None:
    exponents = torch.arange(-160, 140, dtype=torch.float64)
    random = torch.rand(300, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1
    halves = 1 + torch.tensor([1.0, 3.0, 2.0, 0.5, 1.5]).double() * 2.0**-24  # between two, and beside that
    several = torch.cat(
        [
            *(random * 2**exponents, -random * 2**exponents, halves, -halves, halves * 2.0**-149),
            torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 5e-324, 1e308]).double(),
            torch.tensor([torch.finfo(torch.float32).max, 2.0**128 - 2.0**103, 2.0**128 - 2.0**103 - 2**76]),
        ]
    )
    net = Narrow().eval()
    program = legal(net, (several,), dynamic_shapes=({0: Dim("rows", min=2, max=999)},))
    lowered = importer.lower(program)
    module = rewritten(lowered.module, [float64_casts.FIX.apply])
    assert module is not None
    with load(program, replace(lowered, module=module), "vmvx") as runner:
        [found] = runner.infer({"x": several.numpy()}).values()
    np.testing.assert_array_equal(found, several.float().numpy())
    assert (np.signbit(found) == np.signbit(several.numpy()))[~np.isnan(found)].all()


class Truncated(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.long()


@canary(float64_casts.FIX)
def test_iree_casts_them_without() -> None:
    program = legal(Truncated(), (torch.ones(3, dtype=torch.float64),))
    compile_once(importer.lower(program), "iree-vmvx")
