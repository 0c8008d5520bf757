"""Tells the compiler of the fewest lanes that a Vulkan driver's subgroups have."""

from aotpipe.core.fixes import Fix

FIX = Fix(
    id="vulkan-subgroups",
    fault="IREE leaves out barriers between the lanes of a subgroup: told of more lanes than a driver has, "
    "it computes a softmax over rows of a dynamic size wrong by 1e9 times its tolerance (lavapipe has 8)",
    remedy="the target has subgroups of 4 lanes (`core/targets.toml`)",
    targets=("iree-vulkan",),
    program="`models/mtcnn.py:PNET`; `x.softmax(1)` of `float32[1, 2, h, w]`",
)
