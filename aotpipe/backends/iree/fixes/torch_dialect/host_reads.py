"""Reads numbers where a kernel wrote them, for devices whose memory is the host's own.

What a CPU's devices allocate the host can map in any case; what a GPU's do, it cannot.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

from aotpipe.backends.iree.fixes.rewrites import Rewrite, replace_uses
from aotpipe.core.fixes import Fix

CYCLIC: Final = "failed to schedule execution partitions without cyclic dependencies"
"""What the compiler says of some modules with such loads, which it takes without them."""


def _load(extract: Any) -> bool:
    """Load what the importer writes for a number that the host reads, from a tensor of one element."""
    source, element = extract.operands[0], extract.result.type
    if not source.type.has_static_shape or prod(source.type.shape) != 1:
        return False
    if str(element) not in ("i1", "i32", "i64"):
        return False
    replace_uses(extract.result, lambda: _loaded(source, element))
    extract.erase()
    return True


def _loaded(source: Any, element: Any) -> Any:
    from iree.compiler import ir
    from iree.compiler.dialects import hal

    from aotpipe.backends.iree.lower.region_borders import index_constant

    buffer = hal.tensor_export(ir.Type.parse("!hal.buffer"), source, source.type, [])
    return hal.buffer_load(element, buffer, index_constant(0))


FIX: Final = Fix(
    id="host-reads",
    fault="IREE copies a number that the host reads to a buffer that it knows to be the host's: an "
    "allocation and a copy for each trip of a loop whose test reads data",
    remedy="the host loads the number from the buffer that the kernel wrote",
    targets=("iree-cpu-*", "iree-vmvx"),
    program="`while x.sum() < 9: x = x + 1`",
    apply=Rewrite(("tensor.extract",), _load),
    for_all=True,
)
