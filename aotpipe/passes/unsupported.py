"""Finds what a backend cannot lower, before any compiler runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from aotpipe.errors import SourceLine
from aotpipe.passes import hops, unbacked
from aotpipe.passes.rules import LegalizationRules
from aotpipe.passes.source_lines import source_line

aten = torch.ops.aten

NO_LOWERING: Final = "has no lowering"
_RANDOM: Final = "draws random numbers; pass them as an input, or drop the op in eval mode"
_DATA_SIZES: Final = (
    "the size of its result depends on data and has no bound, and an XLA program has fixed sizes; use a "
    "mask, or declare a bound: torch._check(n <= ...), or aotpipe.capacity(n, max=...)"
)
_FACTORS: Final = "factors a matrix as LAPACK does, which has no lowering; do it before the exported part"
_SIZES: Final = "the size of its result depends on data and has no bound; use a mask or topk"
_SELECTION: Final = "torch.export bounds its result by the operand alone; write `x.expand_as(mask)[mask]`"
_TRANSFORM: Final = "has no lowering for a dynamic size, a prime one beyond 4096, or float64"

REASONS: Final[dict[OpOverload, str]] = {
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
"""Why no backend lowers these ops, where more is to be said than that it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """An op without a lowering: why, how often it is met, and the user's first line with it."""

    op: str
    reason: str
    count: int
    where: SourceLine | None


def unsupported(module: GraphModule, rules: LegalizationRules) -> tuple[Unsupported, ...]:
    """All ops of a graph and its subgraphs that cannot be lowered, one row an op and reason, by name."""
    found: dict[tuple[str, str], list[Node]] = {}
    bounded = _bounded(module) if rules.needs_bounded_sizes else None
    for graph in hops.walk(module):
        for node in graph.graph.nodes:
            if node.op == "call_function" and (reason := refusal(node, rules) or _unbounded(node, bounded)):
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


def refusal(node: Node, rules: LegalizationRules) -> str:
    """Why a node of a program cannot be lowered; empty where it can."""
    if isinstance(node.target, HigherOrderOperator):
        return "" if node.target in hops.LAYOUTS else f"{NO_LOWERING}: an unknown higher-order op"
    if not isinstance(node.target, OpOverload):
        return rules.size_refusal(node.target)
    if node.target.namespace == "aotpipe":
        return ""  # an island, at which the graph is cut
    if next(tensors(node), None) is None:
        # The sizes of a tensor, which each backend takes as they are.
        return ""
    if torch.Tag.nondeterministic_seeded in node.target.tags:
        return _RANDOM
    return rules.refusal(node)


def tensors(node: Node) -> Iterator[torch.Tensor]:
    """The tensors that a node gives."""
    for leaf in pytree.tree_leaves(node.meta.get("val")):
        if isinstance(leaf, torch.Tensor):
            yield leaf
