"""Evaluates a legal graph on padded values: every op by its rule, or as it is where no padding reaches it.

`run(entry, ...)` evaluates an entry point. `PaddedInterpreter(arena).run(module, values)` takes and gives
arrays with plain axes, as the plain interpreter does, so that control flow runs its subgraphs by either.

Raises `Refused` with the node, where an op that padding reaches has no rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import jax.numpy as jnp
import sympy
import torch
from jax import lax
from torch import fx

from aotpipe.backends.xla.interpreter import Interpreter, Refused, number_of
from aotpipe.backends.xla.padding.rules import Arena, Call, Padded
from aotpipe.backends.xla.padding.sizes import Extents, Size, Unpaddable, evaluate, scalar
from aotpipe.backends.xla.values import INT32, Array, Out, Sizes, UnknownSize, is_array, relations
from aotpipe.core.signature import evaluate_dim
from aotpipe.core.stages import LegalEntry
from aotpipe.passes import hops, unbacked

NO_RULE: Final = "padding would reach its results, and there is no rule that keeps it away"


class PaddedInterpreter(Interpreter):
    """Evaluates graphs, nested ones too, under one set of extents."""

    def __init__(self, arena: Arena) -> None:
        super().__init__(arena.extents.sizes)
        self._arena = arena

    def _given(self, node: fx.Node, value: Any) -> Any:
        expected = node.meta.get("val")
        if isinstance(expected, torch.SymInt):
            with suppress(UnknownSize):
                return self._arena.extents.number(expected)
        return super()._given(node, value)

    def _constant(self, value: Any) -> Any:
        return self._arena.fixed(value) if is_array(value) else value

    def _out(self, value: torch.Tensor) -> Out:
        return self._arena.out(value)

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Padded):
            return self._arena.plain(value).array
        return value.number if isinstance(value, Size) else value

    def _evaluate(self, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
        try:
            return super()._evaluate(node, known)
        except Unpaddable as error:
            raise Refused(node, str(error)) from None

    def _size(self, value: Any) -> Any:
        return self._arena.extents.number(value)

    def _of_numbers(self, node: fx.Node, args: Any) -> Any:
        """A function of Python's: of a size again a size, where its expression is known."""
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            with suppress(UnknownSize):
                return self._size(value)
        return super()._of_numbers(node, [each.number if isinstance(each, Size) else each for each in args])

    def _item(self, node: fx.Node, x: Any) -> Any:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            self._arena.extents.learn(value, number_of(node, x))
        return super()._item(node, x)

    def _op(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        op = self._op_of(node)
        call = Call(self._arena, node, args, kwargs, op.lower)
        if op.pad is None:
            if call.is_reached:
                raise Refused(node, NO_RULE)
        elif unbacked.symbol_of(node) or call.is_reached:
            return self._checked(node, op.pad(call))
        return self._checked(node, call.as_it_is())

    def _typed(self, value: Any, result: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return result
        found = result if isinstance(result, Padded) else Padded(result, self._arena.axes(value))
        assert len(found.axes) == value.dim(), found.axes
        return Padded(super()._typed(value, found.array), found.axes)

    def _region(self, node: fx.Node, args: Any, **more: Any) -> Any:
        if (length := self._length(node, args)) is not None:
            more["length"] = length
        plain = fx.node.map_aggregate(args, self._plain)
        with self._arena.extents.within():
            return super()._region(node, plain, **more)

    def _length(self, node: fx.Node, args: Any) -> Array | None:
        """How many rows a scan goes over, where they are padded.

        A map computes rows that nobody reads, and a branch or a loop sees its operands with plain axes; a
        scan alone carries what it computed of one row to the next, and must stop where the rows do.
        """
        rows = args[2] if node.target is torch.ops.higher_order.scan else ()
        axes = [each.axes[0] for each in rows if isinstance(each, Padded) and each.is_padded(0)]
        return scalar(self._arena.true(axes[0])) if axes else None


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
    results = PaddedInterpreter(Arena(extents)).run(entry.graph, operands)
    nodes = hops.output_values(entry.graph)[: len(entry.signature.tensor_outputs)]
    dims = [scalar(extents.true(extents.of(size))) for node in nodes for size in node.meta["val"].shape]
    return [*results, jnp.stack(dims) if dims else lax.full((0,), 0, INT32)]
