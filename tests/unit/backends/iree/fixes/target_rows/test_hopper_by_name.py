"""NVIDIA's Hopper, as the compiler knows it by name."""

from __future__ import annotations

from aotpipe.backends.iree.fixes.target_rows import hopper_by_name
from tests.canaries import canary, compile_once
from tests.unit.runtime.iree.samples import RELU


@canary(hopper_by_name.FIX)
def test_iree_knows_what_it_has() -> None:
    device = ("--iree-hal-target-device=cuda", "--iree-cuda-target=sm_90")
    compile_once(RELU, "iree-cuda-sm_90", device=device)
