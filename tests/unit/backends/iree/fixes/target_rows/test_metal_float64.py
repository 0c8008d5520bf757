"""Float64 inside of a model, for Metal."""

from __future__ import annotations

import torch

from aotpipe.backends.iree.fixes.target_rows import metal_float64
from aotpipe.backends.iree.lower import importer
from tests.canaries import canary, compile_once
from tests.programs.through import legal


class Sum(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> float:
        return x.item() + 480.0


@canary(metal_float64.FIX)
def test_metal_computes_in_it() -> None:
    program = importer.lower(legal(Sum(), (torch.tensor(3),)))
    compile_once(program, "iree-metal", ("--iree-input-demote-f64-to-f32=false",))
