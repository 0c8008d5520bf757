"""Circular padding of int64 in SPIR-V."""

from __future__ import annotations

import torch

from aotpipe.backends.iree.fixes.limits import spirv_circular_padding
from aotpipe.backends.iree.lower import importer
from tests.canaries import canary, compile_once
from tests.programs.through import legal


class Padded(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x, (1, 1, 2, 1), mode="circular")


@canary(spirv_circular_padding.FIX)
def test_vulkan_pads_them() -> None:
    program = legal(Padded(), (torch.ones(1, 3, 4, 4, dtype=torch.int64),))
    compile_once(importer.lower(program), "iree-vulkan")
