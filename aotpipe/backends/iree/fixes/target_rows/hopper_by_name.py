"""Spells out what NVIDIA's Hopper has."""

from aotpipe.core.fixes import Fix

FIX = Fix(
    id="hopper-by-name",
    fault="IREE knows `sm_90` by name, but not what it has",
    remedy="the target spells Hopper out (`core/targets.toml`)",
    targets=("iree-cuda-sm_90",),
    program="any kernel",
    diagnostic="missing GPU target in #hal.executable.target",
    upstream="https://github.com/iree-org/iree/issues/22147",
)
