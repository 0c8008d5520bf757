"""Computes what a reduction repeats before it is reduced, where sizes vary."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Node

from aotpipe.backends.iree.fixes.graphs import GraphRewrite
from aotpipe.core.fixes import Fix
from aotpipe.passes import ops
from aotpipe.passes.decompositions.entries import is_one, static
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
REDUCTIONS: Final = ops.overloads(
    "sum sum.dim_IntList mean mean.dim prod prod.dim_int any any.dim any.dims all all.dim all.dims amax amin "
    "max max.dim min min.dim argmax argmin var.correction"
)
_FILLS: Final = ops.overloads("full full_like scalar_tensor")
_KEPT: Final = ops.overloads("clone alias _to_copy expand")


def own_buffers(node: Node) -> tuple[Node, ...]:
    """The operand of a reduction over a dim along which nothing that it is computed from varies."""
    if node.target not in REDUCTIONS:
        return ()
    operand = node.args[0]
    assert isinstance(operand, Node)
    shape = value_of(operand).shape
    if all(map(static, shape)):
        return ()
    varying = _varying(operand, {})
    return (operand,) if any(dim not in varying for dim in _reduced(node, len(shape))) else ()


def _reduced(node: Node, rank: int) -> list[int]:
    given: Any = ops.arguments(node).get("dim")
    dims = list(range(rank)) if given is None else [given] if isinstance(given, int) else list(given)
    return [dim % rank for dim in dims or range(rank)]


def _varying(node: Node, known: dict[Node, frozenset[int]]) -> frozenset[int]:
    """The dims along which a value differs, as far as its ops tell."""
    if node in known:
        return known[node]
    shape = value_of(node).shape
    wide = frozenset(dim for dim, size in enumerate(shape) if not is_one(size))
    operands = [each for each in node.all_input_nodes if isinstance(value_of(each), torch.Tensor)]
    if node.target in _FILLS:
        found = frozenset[int]()
    elif torch.Tag.pointwise in getattr(node.target, "tags", ()) or node.target in _KEPT:
        found = wide & {
            dim + len(shape) - value_of(operand).dim()
            for operand in operands
            for dim in _varying(operand, known)
            if not is_one(value_of(operand).shape[dim])
        }
    else:
        is_one_number = ops.gives_view(node) and not any(_varying(each, known) for each in operands)
        found = frozenset() if is_one_number else wide
    known[node] = found
    return found


FIX: Final = Fix(
    id="broadcast-reductions",
    fault="IREE keeps on the stack what it fuses into a reduction where nothing else bounds a loop of it, "
    "and refuses the program where a size varies",
    remedy="such a value gets a buffer of its own",
    targets=("iree-*",),
    program="`(torch.zeros(n, dtype=torch.int64) != 1).sum()`, where n varies",
    diagnostic="exceeded stack allocation limit",
    apply=GraphRewrite(own_buffers=own_buffers),
)
