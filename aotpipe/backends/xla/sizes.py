"""The sizes of a graph's symbols, and shapes with known sizes.

`bind(placeholders, shapes)` reads off what each symbol of torch's stands for where a graph's inputs have
given shapes; `Sizes.out(value)` gives the `Out` of a node's fake value under that. `relations` does the same
where the shapes are expressions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.fx import Node

from aotpipe.backends.xla.values import Out, dtype_of


class UnknownSize(Exception):
    """A size that depends on data."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of each symbol of a graph."""

    values: Mapping[sympy.Symbol, sympy.Integer]

    def size(self, size: int | torch.SymInt) -> int:
        """A size as a number.

        Raises:
            UnknownSize: It depends on data.
        """
        if isinstance(size, int):
            return size
        found = size.node.expr.xreplace(self.values)
        if not found.is_number:
            raise UnknownSize(str(found))
        return int(found)

    def out(self, value: Any) -> Any:
        """A fake value as what an op must give: an `Out`, a tuple of them, None for a number."""
        if isinstance(value, torch.Tensor):
            return Out(tuple(map(self.size, value.shape)), dtype_of(value.dtype))
        if isinstance(value, (tuple, list)):
            return tuple(map(self.out, value))
        return None


def bind(placeholders: Sequence[Node], shapes: Sequence[Sequence[int]]) -> Sizes:
    """The symbols of a graph whose last inputs have these shapes.

    Raises:
        UnknownSize: No number for a symbol gives these shapes.
    """
    return Sizes(relations(placeholders, shapes))


def relations(
    placeholders: Sequence[Node], shapes: Sequence[Sequence[int | sympy.Expr]]
) -> dict[sympy.Symbol, sympy.Expr]:
    """The symbols of a graph as expressions, where its last inputs have shapes that are expressions.

    Raises:
        UnknownSize: A symbol is in no shape that gives it alone.
    """
    values: dict[sympy.Symbol, sympy.Expr] = {}
    equations: list[tuple[sympy.Expr, sympy.Expr]] = []
    for node, shape in zip(placeholders[len(placeholders) - len(shapes) :], shapes, strict=True):
        for size, known in zip(node.meta["val"].shape, shape, strict=True):
            if isinstance(size, torch.SymInt):
                equations.append((size.node.expr, sympy.sympify(known)))
    for expr, known in sorted(equations, key=lambda pair: pair[0].count_ops()):
        free = expr.free_symbols - values.keys()
        if len(free) != 1:
            continue
        (symbol,) = free
        roots = [known] if expr == symbol else sympy.solve(expr.xreplace(values) - known, symbol)
        whole = [root for root in roots if root.is_integer is not False]
        if not whole:
            raise UnknownSize(str(expr))
        values[symbol] = whole[0]
    return values
