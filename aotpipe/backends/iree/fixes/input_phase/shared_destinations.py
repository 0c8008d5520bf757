"""Keeps two updates from being written into one buffer, where no buffer is read to compute what they update.

The compiler copies a tensor that is updated and used again. Where its kernel reads no buffer, it runs the
kernel again in place of the copy, and then merges both runs as a common subexpression. Here the kernel reads
a zero that the compiler does not know to be one. A splat needs none: those are not merged.
"""

from __future__ import annotations

import re
from functools import partial
from math import prod
from typing import Any, Final

from aotpipe.backends.iree.fixes import opaque_zero
from aotpipe.backends.iree.fixes.rewrites import Rewrite, maker, ops_in, replace_uses
from aotpipe.core.fixes import Fix

_COMPUTED: Final = ("linalg.", "tensor.", "iree_linalg_ext.", "arith.", "math.")
_UPDATES: Final = re.compile(rb"scatter|index_put|nonzero|bincount|unpool|dynamic_update")
_BYTES: Final = re.compile(r"(0|-1) : i|0\.0+e\+00 : |(true|false)$")
"""Constants of any width that repeat a byte."""


def _separate(update: Any) -> bool:
    """Have what an op updates depend on the zero, unless it depends on a buffer or is a splat."""
    place = 1 if update.name == "tensor.insert_slice" else len(update.operands) - 1
    target = update.operands[place]
    if _is_splat(target) or _reads_buffer(target) or _is_evaluated(update):
        return False
    opaque_zero.define(update)
    # One for all that reads it: two would be computed alike, merged late, and written to as one.
    replace_uses(target, partial(opaque_zero.copied, target))
    return True


def _is_splat(value: Any) -> bool:
    op = maker(value)
    if op.name != "linalg.fill":
        return op.name in ("tensor.empty", "arith.constant")
    # The compiler has a kernel for splats of 64 bits that repeat no byte.
    number = maker(op.operands[0])
    is_bytes = "value" in number.attributes and _BYTES.match(str(number.attributes["value"])) is not None
    return is_bytes or "64" not in str(op.operands[0].type)


def _is_evaluated(update: Any) -> bool:
    """Whether the compiler computes an update itself, of constants up to 1 MiB."""
    kind = update.result.type
    if not kind.has_static_shape or prod(kind.shape) * 8 > 2**20:
        return False
    return not _reads_buffer(*update.operands, scalars=True)


def _reads_buffer(*values: Any, scalars: bool = False) -> bool:
    """Whether values are computed from a tensor in memory, or from a number that the host reads there."""
    seen, left = set(), list(values)
    while left:
        op = maker(left.pop())
        if not op.name.startswith(_COMPUTED):
            return True
        if op not in seen:
            seen.add(op)
            given = [each for inner in ops_in(op) for each in inner.operands]
            left += [each for each in given if scalars or str(each.type).startswith("tensor<")]
    return False


FIX: Final = Fix(
    id="shared-destinations",
    fault="IREE writes two updates of one tensor into one buffer where the kernel that made the tensor reads "
    "none (arange, or zeros whose size varies): each sees the other's writes",
    remedy="such a tensor depends on a zero that the compiler does not know",
    targets=("iree-*",),
    program="`torch.nonzero(x > 0), torch.nonzero(x < 1)`, or two sorts of `x`, with a Dim on `x`",
    upstream="https://github.com/iree-org/iree/pull/23665",
    apply=Rewrite(("iree_linalg_ext.scatter", "tensor.insert_slice"), _separate, _UPDATES),
)
