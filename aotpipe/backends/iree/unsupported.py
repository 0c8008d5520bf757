"""Finds what IREE's importer and compiler have no lowering for."""

from __future__ import annotations

import operator
from functools import cache
from types import BuiltinFunctionType
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Node

from aotpipe.passes.scalars import value_of
from aotpipe.passes.unsupported import NO_LOWERING, REASONS, tensors

aten = torch.ops.aten

_DTYPES: Final = frozenset({torch.complex128, torch.complex32, torch.uint16, torch.uint64})
_WINDOWS: Final = "has no lowering for integers of a dynamic size; cast to float around it"
_STRIDED: Final = "reads by strides what its operand does not hold, or sizes that are not known"

# Ops that the torch dialect names and no pass lowers: found by the sweep over torch's own samples.
_NAMED_ONLY: Final = frozenset(
    {
        aten.as_strided_scatter.default,
        aten.erfinv.default,
        aten.lgamma.default,
        aten.multinomial.default,
        aten.polygamma.default,
        aten.resize.default,
    }
)

# Functions that a compiled program would call a C library for, which it does not link.
_DOUBLE: Final = frozenset(
    {
        aten.acos.default,
        aten.asin.default,
        aten.atan.default,
        aten.atan2.default,
        aten.cos.default,
        aten.erf.default,
        aten.fmod.Tensor,
        aten.gelu.default,
        aten.log10.default,
        aten.log2.default,
        aten.remainder.Scalar,
        aten.remainder.Tensor,
        aten.sin.default,
        aten.tan.default,
        aten.tanh.default,
    }
)


# Whose lowering compares or multiplies integers as floats.
_FLOATING: Final = frozenset(
    {
        aten.adaptive_max_pool2d.default,
        aten.adaptive_max_pool3d.default,
        aten.max_pool2d_with_indices.default,
        aten.max_pool3d_with_indices.default,
    }
)


def refusal(node: Node) -> str:
    """Why a node that calls an ATen op on tensors cannot be lowered; empty where it can."""
    assert isinstance(node.target, OpOverload)
    for value in tensors(node):
        if value.dtype in _DTYPES:
            return f"{NO_LOWERING} for {str(value.dtype).removeprefix('torch.')}"
        if value.dtype == torch.float64 and node.target in _DOUBLE:
            return f"{NO_LOWERING} for float64"
    if node.target in _FLOATING and not next(tensors(node)).is_floating_point():
        return _WINDOWS
    if node.target is aten.as_strided.default and (strided := _strided_refusal(node)):
        return strided
    if node.target in REASONS:
        return REASONS[node.target]
    return "" if _is_known(node.target) else NO_LOWERING


def size_refusal(function: object) -> str:
    """Why the importer does not take a Python function of sizes; empty where it does."""
    from iree.compiler.extras import fx_importer

    if function is operator.getitem or not isinstance(function, BuiltinFunctionType):
        return ""
    known = getattr(function, "__name__", "") in fx_importer.PY_BUILTIN_TO_TORCH_OP
    return "" if known else f"{NO_LOWERING} for sizes"


def _strided_refusal(node: Node) -> str:
    """Why the importer could not write a read by strides as one by positions."""
    # Its parts have no public names; its whole would change the graph.
    from iree.compiler.extras import fx_as_strided as importer

    source, size, stride, offset = (*node.args, None)[:4]
    value = value_of(source)
    try:
        place = value.storage_offset() if offset is None else offset
        base = value_of(importer._base(source))
        with unset_fake_temporarily():
            importer._indices(
                importer._ints(base.shape, "base.shape", meta=True),
                importer._ints(base.stride(), "base.stride", meta=True),
                importer._int(base.storage_offset(), "base.storage_offset"),
                importer._ints(size, "size"),
                importer._ints(stride, "stride"),
                importer._int(place, "storage_offset"),
            )
    except ValueError as error:
        return f"{_STRIDED}: {str(error).removeprefix('aten.as_strided.default ')}"
    return ""


@cache
def _is_known(op: OpOverload) -> bool:
    return op not in _NAMED_ONLY and _context().is_registered_operation(_torch_dialect_name(op))


def _torch_dialect_name(op: OpOverload) -> str:
    name = op._schema.name.replace("::", ".")
    overload = op._schema.overload_name
    return f"torch.{name}.{overload}" if overload else f"torch.{name}"


@cache
def _context() -> Any:
    """An MLIR context with the compiler's own dialects; what they do not name becomes a `torch.operator`."""
    from iree.compiler import ir

    return ir.Context()
