"""Float64 functions in SPIR-V."""

from __future__ import annotations

import torch

from aotpipe.backends.iree.fixes.limits import spirv_float64_functions
from aotpipe.backends.iree.lower import importer
from tests.canaries import canary, compile_once
from tests.programs.through import legal


class Softmax(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1, dtype=torch.float64)


@canary(spirv_float64_functions.FIX)
def test_vulkan_has_them() -> None:
    compile_once(importer.lower(legal(Softmax(), (torch.ones(3, 4),))), "iree-vulkan")
