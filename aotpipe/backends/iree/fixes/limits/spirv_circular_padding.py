"""SPIR-V programs pad no int64 circularly."""

from aotpipe.core.fixes import Fix

FIX = Fix(
    id="spirv-circular-padding",
    fault="IREE lowers no circular padding of int64 to SPIR-V; of float32 it does",
    remedy="the build refuses it, with the line",
    targets=("iree-metal", "iree-vulkan"),
    program='`torch.nn.functional.pad(x, (1, 1, 2, 1), mode="circular")` of `int64[1, 3, 4, 4]`',
    diagnostic="failed to legalize operation 'hal.interface.binding.subspan'",
)
