"""Copies slices whose elements a GPU kernel reads at computed places, where it would read other elements.

The compiler makes such a read a gather by the place of the element in the slice, laid flat, and then lets the
slice be a view of the whole tensor, whose rows lie further apart. A fusion barrier behind the slice has it
copied first.
"""

from __future__ import annotations

from typing import Any, Final

from aotpipe.backends.iree.fixes.rewrites import Rewrite, fusion_barrier, replace_uses
from aotpipe.core.fixes import Fix

_RESHAPES: Final = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast")
_BARRIER: Final = "util.optimization_barrier"


def _copy_slice(extract: Any) -> bool:
    slice_ = extract.operands[0].owner
    while _name(slice_) in _RESHAPES:
        slice_ = slice_.operands[0].owner
    if _name(slice_) != "tensor.extract_slice" or _stays_contiguous(slice_):
        return False
    if any(use.owner.name == _BARRIER for use in slice_.result.uses):
        return False  # another read has made the copy
    segments = list(slice_.attributes["operandSegmentSizes"])
    sizes = list(slice_.operands)[sum(segments[:2]) : sum(segments[:3])]
    replace_uses(slice_.result, lambda: fusion_barrier(slice_.result, sizes))
    return True


def _name(owner: Any) -> str:
    """The name of the op that made a value; empty of the block that has it as an argument."""
    return getattr(owner, "name", None) or ""


def _stays_contiguous(slice_: Any) -> bool:
    """Whether a slice's elements lie beside each other in a buffer."""
    # What is computed first may be a transpose, of which the compiler makes a transpose of a slice.
    if _name(slice_.operands[0].owner).startswith("linalg."):
        return False
    source = slice_.operands[0].type
    sizes, strides = (list(slice_.attributes[name]) for name in ("static_sizes", "static_strides"))
    if any(stride != 1 for stride in strides):
        return False
    dims = range(source.rank)
    # Within the first dim of more than one element, all are to be whole.
    first = next((dim for dim in dims if sizes[dim] != 1), source.rank)
    inner = dims[first + 1 :]
    return not any(source.is_dynamic_dim(dim) or sizes[dim] != source.shape[dim] for dim in inner)


FIX: Final = Fix(
    id="gpu-gathers",
    fault="IREE reads other elements at computed places of a slice whose rows lie apart: its gather counts "
    "the slice's own elements, and the slice becomes a view of the whole (seen on an H200; ROCm's kernels "
    "have the same gather and were not run)",
    remedy="a fusion barrier makes such a slice a copy of its own",
    targets=("iree-cuda-*", "iree-rocm-*"),
    program="`x[:, 2:4][:, :, i]` of `float32[2, 8, 5]`",
    apply=Rewrite(("tensor.extract",), _copy_slice),
)
