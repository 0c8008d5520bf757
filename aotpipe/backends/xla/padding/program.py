"""An entry point as a program that pads: traced by jax on the values of its operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy
from jax import lax

from aotpipe.backends.xla.padding.interpreter import PaddedInterpreter
from aotpipe.backends.xla.padding.layout import Arena
from aotpipe.backends.xla.padding.sizes import Extents, evaluate, scalar
from aotpipe.backends.xla.sizes import Sizes, relations
from aotpipe.backends.xla.values import INT32, Array
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

    Args:
        entry: The entry point.
        bound: The sizes of the graph's symbols in the bucket.
        sizes: Those of the Dims.
        least: The Dims of which calls are padded, and the smallest size of each.
        values: The operands, the true sizes last where calls are padded.
    """
    operands, true = (values[:-1], values[-1]) if least else (values, None)
    given = {name: lax.index_in_dim(true, place, keepdims=False) for place, name in enumerate(least)}
    extents = _extents(entry, bound, sizes, least, given)
    results = PaddedInterpreter(Arena(extents)).run(entry.graph, operands)
    nodes = hops.output_values(entry.graph)[: len(entry.signature.tensor_outputs)]
    dims = [scalar(extents.true(extents.of(size))) for node in nodes for size in node.meta["val"].shape]
    return [*results, _vector(dims)]


def _vector(numbers: Sequence[Array]) -> Array:
    if not numbers:
        return lax.full((0,), 0, INT32)
    return lax.concatenate([lax.reshape(number, (1,)) for number in numbers], 0)


def _extents(
    entry: LegalEntry,
    bound: Sizes,
    sizes: Mapping[str, int],
    least: Mapping[str, int],
    given: Mapping[str, Array],
) -> Extents:
    """What the symbols of the graph are, from the true sizes of the Dims that are padded."""
    symbols = {name: sympy.Symbol(name, integer=True) for name in least}
    names: Any = {**{name: sympy.Integer(size) for name, size in sizes.items()}, **symbols}
    # A dim is arithmetic, on expressions too.
    shapes = [[evaluate_dim(dim, names) for dim in spec.dims] for spec in entry.signature.tensor_inputs]
    known = {symbols[name]: value for name, value in given.items()}
    lows = {symbols[name]: sympy.Integer(low) for name, low in least.items()}
    trues: dict[sympy.Symbol, Array] = {}
    lowest: dict[sympy.Symbol, int] = {}
    for symbol, expr in relations(hops.placeholders(entry.graph), shapes).items():
        if expr.free_symbols:
            trues[symbol] = scalar(evaluate(expr, known))
            lowest[symbol] = int(expr.xreplace(lows))
    return Extents(bound, trues, lowest, unbacked.sizes(entry.graph))
