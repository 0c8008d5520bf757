"""Finds what a dialect has no lowering for, before any compiler runs."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import BuiltinFunctionType
from typing import Any, Final

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from aotpipe.core.stages import Dialect
from aotpipe.errors import SourceLine
from aotpipe.passes import hops, unbacked
from aotpipe.passes.decompositions import stablehlo
from aotpipe.passes.scalars import value_of
from aotpipe.passes.source_lines import source_line

aten = torch.ops.aten

_RANDOM: Final = "draws random numbers; pass them as an input, or drop the op in eval mode"
_NO_LOWERING: Final = "has no lowering"
_DTYPES: Final = frozenset({torch.complex128, torch.complex32, torch.uint16, torch.uint64})

_FACTORS: Final = "factors a matrix as LAPACK does, which has no lowering; do it before the exported part"
_SIZES: Final = "the size of its result depends on data and has no bound; use a mask or topk"
_WINDOWS: Final = "has no lowering for integers of a dynamic size; cast to float around it"
_STRIDED: Final = "reads by strides what its operand does not hold, or sizes that are not known"
_DATA_SIZES: Final = (
    "the size of its result depends on data and has no bound, and an XLA program has fixed sizes; use a "
    "mask, or declare a bound: torch._check(n <= ...), or aotpipe.capacity(n, max=...)"
)
_SELECTION: Final = "torch.export bounds its result by the operand alone; write `x.expand_as(mask)[mask]`"
_TRANSFORM: Final = "has no lowering for a dynamic size, a prime one beyond 4096, or float64"

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

_REASONS: Final[dict[OpOverload, str]] = {
    **dict.fromkeys(
        (
            aten._linalg_det.default,
            aten._linalg_eigh.default,
            aten._linalg_slogdet.default,
            aten._linalg_solve_ex.default,
            aten._linalg_svd.default,
            aten.cholesky_inverse.default,
            aten.cholesky_solve.default,
            aten.geqrf.default,
            aten.linalg_cholesky_ex.default,
            aten.linalg_eig.default,
            aten.linalg_householder_product.default,
            aten.linalg_inv_ex.default,
            aten.linalg_ldl_factor_ex.default,
            aten.linalg_ldl_solve.default,
            aten.linalg_lstsq.default,
            aten.linalg_lu.default,
            aten.linalg_lu_factor_ex.default,
            aten.linalg_lu_solve.default,
            aten.linalg_pinv.atol_rtol_tensor,
            aten.linalg_qr.default,
            aten.lu_unpack.default,
            aten.ormqr.default,
            aten.triangular_solve.default,
        ),
        _FACTORS,
    ),
    **dict.fromkeys(
        (
            aten._unique2.default,
            aten.bincount.default,
            aten.unique_consecutive.default,
            aten.unique_dim.default,
        ),
        _SIZES,
    ),
    aten.masked_select.default: _SELECTION,
    **dict.fromkeys((aten._fft_c2c.default, aten._fft_c2r.default, aten._fft_r2c.default), _TRANSFORM),
}

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """An op without a lowering: why, how often it is met, and the user's first line with it."""

    op: str
    reason: str
    count: int
    where: SourceLine | None


def unsupported(module: GraphModule, dialect: Dialect = "torch") -> tuple[Unsupported, ...]:
    """All ops of a graph and its subgraphs that cannot be lowered, one row an op and reason, by name."""
    found: dict[tuple[str, str], list[Node]] = {}
    bounded = _bounded(module) if dialect == "stablehlo" else None
    for graph in hops.walk(module):
        for node in graph.graph.nodes:
            if node.op == "call_function" and (reason := refusal(node, dialect) or _unbounded(node, bounded)):
                found.setdefault((str(node.target), reason), []).append(node)
    return tuple(
        Unsupported(op=op, reason=reason, count=len(nodes), where=_first_line(nodes))
        for (op, reason), nodes in sorted(found.items(), key=lambda item: item[0])
    )


def _first_line(nodes: list[Node]) -> SourceLine | None:
    return next((line for node in nodes if (line := source_line(node))), None)


def _bounded(module: GraphModule) -> set[Any]:
    """The sizes that only a run knows and that have a bound."""
    return {symbol for symbol, size in unbacked.sizes(module).items() if size.most is not None}


def _unbounded(node: Node, bounded: set[Any] | None) -> str:
    """Why a size of a node cannot be one of a program of fixed sizes; empty where it can."""
    return _DATA_SIZES if bounded is not None and unbacked.used_by(node) - bounded else ""


def refusal(node: Node, dialect: Dialect) -> str:
    """Why a node of a dialect's program cannot be lowered; empty where it can."""
    if isinstance(node.target, HigherOrderOperator):
        return "" if node.target in hops.LAYOUTS else f"{_NO_LOWERING}: an unknown higher-order op"
    if not isinstance(node.target, OpOverload):
        known = dialect == "stablehlo" or _is_size_arithmetic(node.target)
        return "" if known else f"{_NO_LOWERING} for sizes"
    if node.target.namespace == "aotpipe":
        return ""  # an island, at which the graph is cut
    if not _has_tensors(node):
        # The sizes of a tensor, which the importer takes as they are.
        return ""
    if torch.Tag.nondeterministic_seeded in node.target.tags:
        return _RANDOM
    return _stablehlo_refusal(node) if dialect == "stablehlo" else _torch_refusal(node, dialect)


def _stablehlo_refusal(node: Node) -> str:
    for value in _tensors(node):
        if value.dtype == torch.complex32:
            return f"{_NO_LOWERING} for complex32"
    if node.target in stablehlo.OPS:
        return ""
    assert isinstance(node.target, OpOverload)
    return _REASONS.get(node.target, _NO_LOWERING)


def _torch_refusal(node: Node, dialect: Dialect) -> str:
    assert isinstance(node.target, OpOverload)
    for value in _tensors(node):
        if value.dtype in _DTYPES:
            return f"{_NO_LOWERING} for {str(value.dtype).removeprefix('torch.')}"
        if value.dtype == torch.float64 and node.target in _DOUBLE:
            return f"{_NO_LOWERING} for float64"
    if node.target in _FLOATING and not next(_tensors(node)).is_floating_point():
        return _WINDOWS
    if node.target is aten.as_strided.default and (strided := _strided_refusal(node)):
        return strided
    if node.target in _REASONS:
        return _REASONS[node.target]
    return "" if _is_known(node.target, dialect) else _NO_LOWERING


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


def _is_size_arithmetic(function: object) -> bool:
    """Whether the importer takes a Python function of sizes."""
    from iree.compiler.extras import fx_importer

    if function is operator.getitem or not isinstance(function, BuiltinFunctionType):
        return True
    return getattr(function, "__name__", "") in fx_importer.PY_BUILTIN_TO_TORCH_OP


def _has_tensors(node: Node) -> bool:
    return any(True for _ in _tensors(node))


def _tensors(node: Node) -> Iterator[torch.Tensor]:
    for leaf in pytree.tree_leaves(node.meta.get("val")):
        if isinstance(leaf, torch.Tensor):
            yield leaf


@cache
def _is_known(op: OpOverload, dialect: Dialect) -> bool:
    if dialect == "torch":
        return op not in _NAMED_ONLY and _context().is_registered_operation(_torch_dialect_name(op))
    return True


def _torch_dialect_name(op: OpOverload) -> str:
    name = op._schema.name.replace("::", ".")
    overload = op._schema.overload_name
    return f"torch.{name}.{overload}" if overload else f"torch.{name}"


@cache
def _context() -> Any:
    """An MLIR context with the compiler's own dialects; what they do not name becomes a `torch.operator`."""
    from iree.compiler import ir

    return ir.Context()
