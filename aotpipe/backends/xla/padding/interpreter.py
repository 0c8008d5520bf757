"""Evaluates a legal entry point in a bucket, from the true sizes of a call.

`run(entry, ...)` gives its results and their true dims; it raises what `Interpreter` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import sympy
from jax import lax

from aotpipe.backends.xla.interpreter import Interpreter
from aotpipe.backends.xla.padding.sizes import Extents, evaluate, scalar
from aotpipe.backends.xla.values import INT32, Array, Sizes, relations
from aotpipe.core.signature import evaluate_dim
from aotpipe.core.stages import LegalEntry
from aotpipe.passes import hops, unbacked


def run(
    entry: LegalEntry,
    bound: Sizes,
    *,
    sizes: Mapping[str, int],
    least: Mapping[str, int],
    values: Sequence[Any],
) -> list[Array]:
    """The results of an entry point, and after them the true dims of all of its outputs.

    `bound` are the sizes of the graph's symbols in the bucket, `sizes` those of the Dims, `least` the Dims of
    which calls are padded, and the smallest size of each. The true sizes come last in `values` where calls
    are padded.
    """
    operands, true = (values[:-1], values[-1]) if least else (values, None)
    symbols = {name: sympy.Symbol(name, integer=True) for name in least}
    names: Any = {**{name: sympy.Integer(size) for name, size in sizes.items()}, **symbols}
    # A dim is arithmetic, on expressions too.
    shapes = [[evaluate_dim(dim, names) for dim in spec.dims] for spec in entry.signature.tensor_inputs]
    known = {
        symbol: lax.index_in_dim(true, place, keepdims=False) for place, symbol in enumerate(symbols.values())
    }
    lows = {symbols[name]: sympy.Integer(low) for name, low in least.items()}
    relating = {
        symbol: expr
        for symbol, expr in relations(hops.placeholders(entry.graph), shapes).items()
        if expr.free_symbols
    }
    trues = {symbol: scalar(evaluate(expr, known)) for symbol, expr in relating.items()}
    lowest = {symbol: int(expr.xreplace(lows)) for symbol, expr in relating.items()}
    extents = Extents(bound, trues, lowest, unbacked.sizes(entry.graph))
    results = Interpreter(extents).run(entry.graph, operands)
    nodes = hops.output_values(entry.graph)[: len(entry.signature.tensor_outputs)]
    dims = [scalar(extents.true(extents.of(size))) for node in nodes for size in node.meta["val"].shape]
    return [*results, jnp.stack(dims) if dims else lax.full((0,), 0, INT32)]
