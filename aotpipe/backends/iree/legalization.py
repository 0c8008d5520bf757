"""What legalization does for IREE's torch dialect, on CPUs and on GPUs.

`refusal` and `size_refusal` find what IREE's importer and compiler have no lowering for.

IREE's bytecode for any CPU (`iree-vmvx`, 3.13) rounds floats to the nearest integer where torch, C and IREE's
other targets cut off: `truncate(graph, ranges)` cuts off before each cast. Of NaN and of what has no room the
compiler makes any number, where eager on x86 makes the least int32 and cuts shorter integers from that.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from types import BuiltinFunctionType
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from aotpipe.backends.iree.decompositions import table
from aotpipe.backends.iree.tuning import (
    bags,
    convolution,
    kernels,
    layouts,
    pools,
    recurrences,
    row_indices,
    steps_after,
    vector_products,
)
from aotpipe.passes import decompositions, ops, split_reductions
from aotpipe.passes.decompositions import Decomposition, blas, losses
from aotpipe.passes.emit import Emitter, rewrite
from aotpipe.passes.ranges import Ranges
from aotpipe.passes.rules import NO_LOWERING, REASONS, LegalizationRules
from aotpipe.passes.scalars import value_of

aten = torch.ops.aten

_INT32: Final = torch.iinfo(torch.int32)
_TRUNC: Final = aten.trunc.default
# What these give has no fraction.
_WHOLE: Final = ops.overloads("trunc floor ceil round")

_DTYPES: Final = frozenset({torch.complex32, torch.uint16, torch.uint64})
_WINDOWS: Final = "has no lowering for integers of a dynamic size; cast to float around it"

_BAGS: Final = (aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
_OWN: Final = (kernels.OP, pools.OP, steps_after.OP, bags.OP)

# Ops that the torch dialect names and no pass lowers: found by the sweep over torch's own samples.
_NAMED_ONLY: Final = ops.overloads("as_strided_scatter erfinv lgamma multinomial polygamma resize")

# Functions of which a program calls the C library for float64 (`fixes/flags/c_library_math.py`).
_DOUBLE: Final = ops.overloads(
    "acos asin atan atan2 cos sin tan tanh log10 log2 fmod.Tensor remainder.Scalar remainder.Tensor"
)

_OF_REALS: Final = ops.overloads("acos acosh asin asinh atan atanh")

# Whose lowering compares or multiplies integers as floats.
_FLOATING: Final = ops.overloads(
    "adaptive_max_pool2d adaptive_max_pool3d max_pool2d_with_indices max_pool3d_with_indices"
)


def refusal(node: Node) -> str:
    """Why a node that calls an ATen op on tensors cannot be lowered; empty where it can."""
    assert isinstance(node.target, OpOverload)
    for value in (each for part in (node, *node.all_input_nodes) for each in ops.tensors(part)):
        if value.dtype in _DTYPES:
            return f"{NO_LOWERING} for {str(value.dtype).removeprefix('torch.')}"
    for value in ops.tensors(node):
        if value.is_complex() and node.target in _OF_REALS:
            return f"{NO_LOWERING} for {str(value.dtype).removeprefix('torch.')}"
    if node.target in _FLOATING and not next(ops.tensors(node)).is_floating_point():
        return _WINDOWS
    if node.target in REASONS:
        return REASONS[node.target]
    return "" if node.target in _OWN or _is_known(node.target) else NO_LOWERING


def folds(node: Node) -> bool:
    """Whether a node calls the C library, which a table of sines is not worth, or reads parts of numbers.

    The compiler dies on constants of complex128 (SIGFPE in PackConstants), and takes none of one number.
    """
    if node.target is aten.view_as_real.default:
        return True
    return node.target in _DOUBLE and any(value.dtype is torch.float64 for value in ops.tensors(node))


def size_refusal(function: object) -> str:
    """Why the importer does not take a Python function of sizes; empty where it does."""
    from iree.compiler.extras import fx_importer

    if function is operator.getitem or not isinstance(function, BuiltinFunctionType):
        return ""
    known = getattr(function, "__name__", "") in fx_importer.PY_BUILTIN_TO_TORCH_OP
    return "" if known else f"{NO_LOWERING} for sizes"


@cache
def _is_known(op: OpOverload) -> bool:
    parts = ("torch", op._schema.name.replace("::", "."), op._schema.overload_name)
    return op not in _NAMED_ONLY and _context().is_registered_operation(".".join(filter(None, parts)))


@cache
def _context() -> Any:
    """An MLIR context with the compiler's own dialects; what they do not name becomes a `torch.operator`."""
    from iree.compiler import ir

    return ir.Context()


def _table_of_cpu() -> Mapping[Any, Decomposition]:
    return {**_table_with(convolution.on_cpu), **dict.fromkeys(_BAGS, bags.embedding_bag)}


def _table_with(form: Decomposition) -> Mapping[Any, Decomposition]:
    return {
        **table(),
        aten.convolution.default: form,
        **decompositions.of_libraries({**blas.LIBRARIES, **losses.LIBRARIES}),
    }


def truncate(graph: GraphModule, ranges: Ranges) -> bool:
    """Change the casts of a graph to integers; gives whether there was one."""
    casts = graph.graph.find_nodes(op="call_function", target=ops.CAST)
    return rewrite(graph, [node for node in casts if _cuts_off(node)], partial(_cut_off, ranges))


def _cut_off(ranges: Ranges, emit: Emitter, node: Node) -> Node:
    (source,), dtype = node.all_input_nodes, value_of(node).dtype
    whole = source if source.target in _WHOLE else emit(_TRUNC, source)
    if dtype is torch.int64 or ranges.space.within(ranges.of(source), _INT32.min, _INT32.max):
        return emit(ops.CAST, whole, **node.kwargs)
    if dtype is torch.uint8 and value_of(source).dtype is torch.float64:
        return emit(ops.CAST, emit(ops.CAST, whole, dtype=torch.int64), dtype=dtype)
    # No float32 is between the largest int32 and 2**31.
    above, below = emit(aten.ge.Scalar, whole, float(_INT32.min)), emit(aten.lt.Scalar, whole, 2.0**31)
    least = emit(aten.full.default, [], _INT32.min, dtype=torch.int32)
    made = emit(ops.CAST, whole, dtype=torch.int32)
    held = emit(aten.where.self, emit(aten.logical_and.default, above, below), made, least)
    return held if dtype is torch.int32 else emit(ops.CAST, held, dtype=dtype)


def _cuts_off(node: Node) -> bool:
    given, made = value_of(node.args[0]), value_of(node)
    return (
        isinstance(given, torch.Tensor)
        and given.dtype.is_floating_point
        and not (made.dtype.is_floating_point or made.dtype.is_complex or made.dtype is torch.bool)
    )


_PLAIN: Final = LegalizationRules(
    dialect="torch", decompositions=_table_of_cpu, refusal=refusal, size_refusal=size_refusal, folds=folds
)
CPU: Final = replace(
    _PLAIN,
    # XLA's and a GPU's sums are of parts anyway, and not each GPU has float64.
    program_passes=(*_PLAIN.program_passes, split_reductions.widen),
    range_passes=(*_PLAIN.range_passes, truncate),
    entry_passes=(
        layouts.keep_channels_last,
        vector_products.as_sums,
        kernels.products,
        steps_after.take,
        row_indices.as_rows,
        recurrences.take,
    ),
)
GPU: Final = replace(
    CPU,
    decompositions=partial(_table_with, convolution.on_gpu),
    program_passes=_PLAIN.program_passes,
    entry_passes=(),
)
