"""How much arithmetic a call takes, estimated from the legal graph.

`work(entry)` gives a function from the sizes of the signature's symbols to a number of multiply-adds: one for
each element that an op computes, times the sizes that it sums over. A branch counts whichever is taken, a
`while_loop` as one trip, a size that only the run knows as 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any, Final

import sympy
import torch
from torch.fx import GraphModule, Node

from aotpipe.backends.iree.tuning import kernels, steps_after
from aotpipe.core.signature import evaluate_dim
from aotpipe.core.stages import LegalEntry
from aotpipe.passes import hops, ops

_ATEN: Final = torch.ops.aten
_Sizes = Iterable[int | torch.SymInt]
_MULTIPLY: Final[Mapping[object, Callable[[tuple[Any, ...]], tuple[_Sizes, _Sizes]]]] = {
    _ATEN.mm.default: lambda args: (args[0].shape[-1:], args[1].shape),
    _ATEN.bmm.default: lambda args: (args[0].shape[-1:], args[1].shape),
    _ATEN.addmm.default: lambda args: (args[1].shape[-1:], args[2].shape),
    _ATEN.baddbmm.default: lambda args: (args[1].shape[-1:], args[2].shape),
    _ATEN.convolution.default: lambda args: (args[1].shape[1:], args[1].shape),
    _ATEN.scaled_dot_product_attention.default: lambda args: (args[1].shape[-2:], args[1].shape),
    kernels.OP: lambda args: (args[1].shape[1:], args[1].shape),
    steps_after.OP: lambda args: (args[0][1].shape[1:], args[0][1].shape),
}
"""From the fake values of an op's arguments: the sizes that it sums over for each element of its result, and
those of what it multiplies by."""

_MOVED: Final = ops.REARRANGES | ops.overloads("t transpose.int")
"""Ops that compute nothing."""

Terms = Counter[tuple[sympy.Expr, ...]]
"""How often each product of sizes counts."""


def work(entry: LegalEntry, *, of_moved: int = 0) -> Callable[[Mapping[str, int]], float]:
    """The multiply-adds of a call, by the size of each symbol.

    `of_moved` are those that stand for the memory's time for an element, of what an op multiplies by and of
    the result of an op that sums no products.
    """
    terms = _terms(entry.graph, of_moved)
    used = {size for product in terms for size in product}

    def at(sizes: Mapping[str, int]) -> float:
        values = _values(entry, sizes)
        # A size that only the run knows counts as 1.
        known = {size: int(found) if (found := size.xreplace(values)).is_number else 1 for size in used}
        return float(sum(count * prod(known[size] for size in product) for product, count in terms.items()))

    return at


def _terms(module: GraphModule, of_moved: int) -> Terms:
    terms: Terms = Counter()
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if node.op == "call_function" and isinstance(value, torch.Tensor) and node.target not in _MOVED:
            summed, moved = _multiplied(node) or ((), value.shape)
            _add(terms, [*value.shape, *summed])
            if of_moved:
                _add(terms, moved, count=of_moved)
    for call in hops.calls(module):
        trips: _Sizes = ()
        if call.layout.sliced is not None:
            trips = call.operands(call.layout.sliced)[0].meta["val"].shape[:1]
        for body in call.subgraphs:
            for product, count in _terms(body, of_moved).items():
                _add(terms, trips, product, count)
    return terms


def _multiplied(node: Node) -> tuple[_Sizes, _Sizes] | None:
    """What a node sums over and what it multiplies by; None where it sums no products."""
    multiply = _MULTIPLY.get(node.target)
    return multiply and multiply(torch.fx.map_arg(node.args, lambda used: used.meta["val"]))


def _add(terms: Terms, sizes: _Sizes, product: tuple[sympy.Expr, ...] = (), count: int = 1) -> None:
    symbolic = list(product)
    for size in sizes:
        if isinstance(size, int):
            count *= size
        else:
            symbolic.append(size.node.expr)
    terms[tuple(sorted(symbolic, key=str))] += count


def _values(entry: LegalEntry, sizes: Mapping[str, int]) -> dict[sympy.Symbol, int]:
    """The size of each symbol of torch's, read off the inputs."""
    specs = entry.signature.tensor_inputs
    nodes = hops.placeholders(entry.graph)
    values: dict[sympy.Symbol, int] = {}
    for node, spec in zip(nodes[len(nodes) - len(specs) :], specs, strict=True):
        for size, dim in zip(node.meta["val"].shape, spec.dims, strict=True):
            if isinstance(size, torch.SymInt):
                expr = size.node.expr
                found = sympy.solve(expr - evaluate_dim(dim, sizes), *expr.free_symbols, dict=True)
                values.update(found[0] if len(expr.free_symbols) == 1 and found else {})
    return values
