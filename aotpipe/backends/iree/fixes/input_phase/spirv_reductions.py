"""Keeps reductions over other dims than the last apart from what reads them, for SPIR-V programs.

The compiler puts `x / x.sum(1, keepdim=True)` into one kernel, spreads the sums over the threads by other
dims than the quotients, and leaves out the barrier between. Where the dims that stay come first, each thread
reads its own sums, and the kernel is right.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from aotpipe.backends.iree.fixes.rewrites import Rewrite, put_results_behind_barriers
from aotpipe.core.fixes import Fix


def _keep_apart(generic: Any) -> bool:
    kinds = ["reduction" in str(kind) for kind in generic.attributes["iterator_types"]]
    if not any(is_reduced and not next_is for is_reduced, next_is in pairwise(kinds)):
        return False
    put_results_behind_barriers(generic)
    return True


FIX: Final = Fix(
    id="spirv-reductions",
    fault="IREE leaves out the barrier between a reduction over other dims than the last and what reads it "
    "in the same kernel, so that threads read what others have not written yet (seen on Vulkan with "
    "lavapipe; Metal has the same code and was not run)",
    remedy="a fusion barrier makes the reduction a kernel of its own",
    targets=("iree-metal", "iree-vulkan"),
    program="`x.softmax(1)` of `float32[2, 3, 4, 5]`, which is infinite",
    apply=Rewrite(("linalg.generic",), _keep_apart),
)
