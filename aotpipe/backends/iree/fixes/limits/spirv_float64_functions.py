"""SPIR-V has no float64 functions."""

from aotpipe.core.fixes import Fix

FIX = Fix(
    id="spirv-float64-functions",
    fault="SPIR-V has no float64 functions beside the square root",
    remedy="the build refuses it, with the line",
    targets=("iree-metal", "iree-vulkan"),
    program="`x.softmax(-1, dtype=torch.float64)`",
    diagnostic="'spirv.GL.Exp' op operand #0 must be 16/32-bit float",
)
