"""Compiles convolutions of transposed tensors whose filter ROCm's code generator takes in another order."""

from aotpipe.backends.iree.fixes.flags import Fallback
from aotpipe.core.fixes import Fix

FIX = Fix(
    id="transposed-convolutions",
    fault="IREE swaps two dims of the filter where it makes a matrix product of a convolution whose input is "
    "a transposed tensor, and its own verifier refuses the result",
    remedy="the program is compiled again with direct convolutions; the notes say so",
    targets=("iree-rocm-gfx90a", "iree-rocm-gfx942"),
    program="`conv2d(x.permute(0, 2, 3, 1), w)` of `x: float32[24, 24, 3, 24]`, `w: float32[28, 3, 3, 3]`",
    diagnostic="'linalg.generic' op inferred input/output operand #1 has shape's dimension",
    apply=Fallback(
        name="with direct convolutions",
        add=("--iree-codegen-llvmgpu-use-igemm=false",),
        after=r"inferred input/output operand #\d+ has shape's dimension",
    ),
)
