"""Softmax over channels of images of any size, for a Vulkan driver with fewer lanes than the stock target."""

from __future__ import annotations

import torch
from torch.export import Dim

from aotpipe.backends.iree.fixes.input_phase import spirv_reductions
from aotpipe.backends.iree.fixes.target_rows import vulkan_subgroups
from aotpipe.backends.iree.lower import importer
from aotpipe.core.targets import Target
from tests.canaries import canary, compile_once
from tests.programs.through import compare, legal, load_payload, require_vulkan


@canary(vulkan_subgroups.FIX, spirv_reductions.FIX)
def test_iree_computes_it_right_for_32_lanes() -> None:
    require_vulkan()
    model = torch.nn.Softmax(1).eval()
    sizes = {2: Dim("height", min=4, max=64), 3: Dim("width", min=4, max=64)}
    program = legal(model, (torch.randn(1, 2, 12, 12),), dynamic_shapes=(sizes,))
    device = [
        flag.replace("subgroup_size_choices = [4]", "subgroup_size_choices = [32]")
        for flag in Target.parse("iree-vulkan").row.flags
    ]
    compiled = compile_once(importer.lower(program), "iree-vulkan", device=device)
    with load_payload(program, compiled.payload, "vulkan") as runner:
        compare(runner, program, model, (torch.randn(1, 2, 17, 31),))
