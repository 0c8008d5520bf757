"""Compiles reductions that CUDA's code generator cannot distribute by its other pipeline."""

from aotpipe.backends.iree.fixes.flags import Fallback
from aotpipe.core.fixes import Fix

FIX = Fix(
    id="reduction-distribution",
    fault="IREE cannot distribute the vectors of a reduction over integers that become wider on the way",
    remedy="the program is compiled again without reductions over distributed vectors; the notes say so",
    targets=("iree-cuda-*",),
    program="a count: the sum over a `tensor<480xi32>` of comparisons widened to `i64`",
    diagnostic="'func.func' op failed to distribute",
    apply=Fallback(
        name="without reductions over distributed vectors",
        add=("--iree-codegen-llvmgpu-use-reduction-vector-distribution=false",),
        after=r"failed to distribute",
    ),
)
