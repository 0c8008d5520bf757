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

from aotpipe.backends.iree.fixes.rewrites import Rewrite, ops_in, parents, replace_uses
from aotpipe.core.fixes import Fix

_ZERO: Final = "__aotpipe_zero"
_GLOBAL: Final = f"""
util.global private @{_ZERO} : tensor<i32>
util.initializer {{
  %zero = arith.constant dense<0> : tensor<i32>
  %opaque = util.optimization_barrier %zero : tensor<i32>
  util.global.store %opaque, @{_ZERO} : tensor<i32>
  util.return
}}"""
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
    _define(update)
    # One for all that reads it: two would be computed alike, merged late, and written to as one.
    replace_uses(target, partial(_joined, target))
    return True


def _is_splat(value: Any) -> bool:
    op = _maker(value)
    if op.name != "linalg.fill":
        return op.name in ("tensor.empty", "arith.constant")
    # The compiler has a kernel for splats of 64 bits that repeat no byte.
    number = _maker(op.operands[0])
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
        op = _maker(left.pop())
        if not op.name.startswith(_COMPUTED):
            return True
        if op not in seen:
            seen.add(op)
            given = [each for inner in ops_in(op) for each in inner.operands]
            left += [each for each in given if scalars or str(each.type).startswith("tensor<")]
    return False


def _maker(value: Any) -> Any:
    """The op that gives a value, or that has the block whose argument it is."""
    from iree.compiler import ir

    return value.owner.owner.operation if isinstance(value.owner, ir.Block) else value.owner.operation


def _joined(value: Any) -> Any:
    from iree.compiler import ir
    from iree.compiler.dialects import arith, linalg, tensor, util
    from iree.compiler.dialects import complex as complex_

    from aotpipe.backends.iree.lower.region_borders import dynamic_dims

    kind, word = value.type, ir.IntegerType.get_signless(32)
    element, same = kind.element_type, ir.AffineMap.get_identity(kind.rank)
    maps = [same, ir.AffineMap.get(kind.rank, 0, []), same]
    sizes = iter(dynamic_dims(value))
    shape = [next(sizes) if kind.is_dynamic_dim(dim) else kind.shape[dim] for dim in range(kind.rank)]
    number = util.global_load(ir.RankedTensorType.get([], word), _ZERO)
    outputs = [tensor.empty(shape, element)]

    @linalg.generic([value, number], outputs, maps, ["parallel"] * kind.rank)  # type: ignore[untyped-decorator]
    def joined(given: Any, zero: Any, _: Any) -> Any:
        if isinstance(element, ir.IntegerType):
            cast = arith.trunci if element.width < word.width else arith.extui
            return arith.xori(given, zero if element == word else cast(element, zero))
        is_zero = arith.cmpi(arith.CmpIPredicate.eq, zero, arith.constant(word, 0))
        if isinstance(element, ir.FloatType):
            return arith.select(is_zero, given, arith.sitofp(element, zero))
        part = arith.sitofp(element.element_type, zero)
        return arith.select(is_zero, given, complex_.create_(element, part, part))

    return joined


def _define(update: Any) -> None:
    """Put the zero into an op's module, unless it is there."""
    from iree.compiler import ir

    *_, module = parents(update)
    body = module.regions[0].blocks[0]
    if any(op.name == "util.global" and _ZERO in str(op.attributes["sym_name"]) for op in body.operations):
        return
    made = ir.Module.parse(_GLOBAL)
    for op in reversed(list(made.body.operations)):
        ir.InsertionPoint.at_block_begin(body).insert(op.operation.detach_from_parent())


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
