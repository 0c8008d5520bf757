"""Copies slices that begin at no multiple of 16 bytes, where SPIR-V programs would read other elements.

The compiler reads 16 bytes at a time wherever the rows of a buffer are a multiple of that, and rounds down
the place where a slice of such rows begins. A slice that is a copy of its own is right, if fusion barriers
before and behind keep it from being joined with what makes the rows and with what reads it.
"""

from __future__ import annotations

import re
from typing import Any, Final

from aotpipe.backends.iree.fixes.rewrites import Rewrite, fusion_barrier, replace_uses
from aotpipe.core.fixes import Fix

_ACCESS_BITS: Final = 128
_NUMBER: Final = re.compile(r"[a-z]+(\d+)\w*")
"""An element's type, whose bits are in its name; indices and complex numbers have none."""


def _copy(slice_: Any) -> bool:
    bits = _NUMBER.fullmatch(str(slice_.operands[0].type.element_type))
    if bits is None or _is_aligned(slice_, max(8, int(bits[1]))):
        return False
    from iree.compiler import ir

    from aotpipe.backends.iree.lower.region_borders import dynamic_dims

    with ir.InsertionPoint(slice_), slice_.location:
        rows = slice_.operands[0]
        slice_.operands[0] = fusion_barrier(rows, dynamic_dims(rows))
    segments = list(slice_.attributes["operandSegmentSizes"])
    sizes = list(slice_.operands)[sum(segments[:2]) : sum(segments[:3])]
    replace_uses(slice_.result, lambda: fusion_barrier(slice_.result, sizes))
    return True


def _is_aligned(slice_: Any, bits: int) -> bool:
    """Whether a slice begins, in the innermost dims that are read as one, where an access may."""
    source = slice_.operands[0].type
    offsets, sizes = (list(slice_.attributes[name]) for name in ("static_offsets", "static_sizes"))
    inner = 1
    for dim in reversed(range(source.rank)):
        if source.is_dynamic_dim(dim) or offsets[dim] != 0 or sizes[dim] != source.shape[dim]:
            # What only a run knows may be any place.
            begin = offsets[dim] if offsets[dim] >= 0 else 1
            return bool(begin * inner * bits % _ACCESS_BITS == 0)
        inner *= source.shape[dim]
    return True


FIX: Final = Fix(
    id="spirv-slices",
    fault="IREE reads other elements for a slice that does not begin at a multiple of 16 bytes, of rows "
    "that do: it rounds the slice's offset down (seen on Vulkan with lavapipe; Metal has the same code and "
    "was not run)",
    remedy="fusion barriers make such a slice a copy of its own",
    targets=("iree-metal", "iree-vulkan"),
    program="`x[:, 1:9] * 2` of `float32[8, 16]`, which is `x[:, 0:8] * 2`",
    apply=Rewrite(("tensor.extract_slice",), _copy),
)
