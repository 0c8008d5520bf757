"""Computes numbers that become 64 bits wide once, and not in each GPU kernel that reads them."""

from __future__ import annotations

from typing import Any, Final

from aotpipe.backends.iree.fixes.rewrites import Rewrite, put_results_behind_barriers
from aotpipe.core.fixes import Fix

_WIDENINGS: Final = ("arith.extsi", "arith.extui", "arith.extf", "arith.sitofp", "arith.uitofp")


def _compute_once(generic: Any) -> bool:
    uses = [use for result in generic.results for use in result.uses]
    # A size is told by the tensor's type and operands; no kernel reads an element for it.
    reads = sum(use.owner.operation.name != "tensor.dim" for use in uses)
    if reads < 2 or not _widens(generic.regions[0].blocks[0]):
        return False
    put_results_behind_barriers(generic)
    return True


def _widens(body: Any) -> bool:
    """Whether a kernel's body gives its first operand in 64 bits, and does nothing else."""
    ops = [op.operation for op in body.operations]
    if len(ops) != 2 or ops[0].name not in _WIDENINGS:
        return False
    widening, end = ops
    return (
        widening.operands[0] == body.arguments[0]
        and str(widening.result.type) in ("i64", "f64")
        and list(end.operands) == [widening.result]
    )


FIX: Final = Fix(
    id="gpu-widening",
    fault="IREE repeats a widening to 64 bits in each kernel that reads it, and holds the widened row in "
    "the workgroup's shared memory where the kernel reduces it",
    remedy="a fusion barrier makes the widening a kernel of its own",
    targets=("iree-cuda-*", "iree-metal", "iree-vulkan"),
    program="`y = x.long(); return y + 1, (y <= 12).sum()` of an `int32[8000]`, and each sort of as many",
    diagnostic="uses 64000 bytes of shared memory; exceeded the limit of 32768 bytes",
    apply=Rewrite(("linalg.generic",), _compute_once),
)
