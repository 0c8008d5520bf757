"""Softmax over a dynamic batch, for a Vulkan driver with fewer lanes than the stock target's."""

from __future__ import annotations

import torch
from torch.export import Dim

from aotpipe.backends.iree.fixes.target_rows import vulkan_subgroups
from aotpipe.backends.iree.lower import importer
from aotpipe.core.targets import Target
from tests.canaries import canary, compile_once
from tests.programs.through import compare, legal, load_payload, require_vulkan


@canary(vulkan_subgroups.FIX)
def test_iree_computes_it_right_for_32_lanes() -> None:
    require_vulkan()
    model = torch.nn.Softmax(-1).eval()
    program = legal(model, (torch.randn(4, 2),), dynamic_shapes=({0: Dim("batch", min=1, max=64)},))
    device = [
        flag.replace("subgroup_size_choices = [4]", "subgroup_size_choices = [32]")
        for flag in Target.parse("iree-vulkan").row.flags
    ]
    compiled = compile_once(importer.lower(program), "iree-vulkan", device=device)
    with load_payload(program, compiled.payload, "vulkan") as runner:
        compare(runner, program, model, (torch.randn(37, 2),))
