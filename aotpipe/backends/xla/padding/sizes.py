"""Sizes of a program that pads: each has a value in the bucket, and a true one that a call brings along.

An `Extents` knows both for every symbol of torch's. A size is a sympy expression: `of` leaves in it the
symbols that are padded, so that a number is a size without padding. Padding lies behind what is there, so
that no size may shrink as its symbols grow; `of` refuses one that might. `extents_of(entry, ...)` gives those
of an entry point, from the true sizes of a call.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

import jax.numpy as jnp
import sympy
import torch
from jax import lax
from torch.utils._sympy import functions  # torch's own functions of sizes have no public place

from aotpipe.backends.xla.values import (
    FLOAT64,
    INT32,
    INT64,
    Array,
    Sizes,
    UnknownSize,
    cast,
    is_array,
    relations,
)
from aotpipe.core.signature import dim_symbols, evaluate_dim, guard_holds
from aotpipe.core.stages import LegalEntry
from aotpipe.passes import hops, unbacked
from aotpipe.passes.unbacked import DataSize

Expr = Any
"""A sympy expression; sympy has no annotations."""
# Sizes that are tried one by one where the form of an expression says nothing.
_TRIES: Final = 1 << 16


class Unpaddable(Exception):
    """What padding would change, and why."""


@dataclass(frozen=True, slots=True)
class Size:
    """A number that is computed from sizes, where padding makes it two."""

    bucket: int
    true: Array
    expr: Expr

    @property
    def number(self) -> Array:
        """The true one as torch would have it, in 64 bits."""
        return cast(self.true, INT64)


@dataclass(slots=True)
class Extents:
    """The sizes of one program.

    Attributes:
        sizes: Each symbol's value in the bucket.
        trues: The true values of the symbols that are padded, as 0-d int32 arrays.
        least: The smallest true value of each of them.
        unknown: The ranges of the sizes that the run finds out.
        names: The Dims that symbols stand for.
        guards: What is known of the Dims of every call.
    """

    sizes: Sizes
    trues: dict[sympy.Symbol, Array] = field(default_factory=dict)
    least: dict[sympy.Symbol, int] = field(default_factory=dict)
    unknown: Mapping[sympy.Symbol, DataSize] = field(default_factory=dict)
    names: Mapping[sympy.Symbol, str] = field(default_factory=dict)
    guards: Sequence[str] = ()
    _seen: dict[Expr, Expr] = field(default_factory=dict)

    def learn(self, size: int | torch.SymInt, true: Array) -> None:
        """Take up a size that the run finds out, as far as shapes are made of it and it has a bound."""
        symbol = size.node.expr if isinstance(size, torch.SymInt) else None
        found = self.unknown.get(symbol)
        if found is None or found.most is None:
            return
        most = found.most.xreplace(self.sizes.values)
        if not most.is_Integer:
            raise UnknownSize(str(most))
        self.sizes = Sizes({**self.sizes.values, symbol: most})
        self.trues[symbol] = lax.clamp(scalar(0), cast(true, INT32), scalar(most))
        self.least[symbol] = found.least
        self._seen.clear()

    @contextmanager
    def within(self) -> Iterator[None]:
        """A body, of which nothing is known outside of it."""
        before = self.sizes, dict(self.trues), dict(self.least)
        try:
            yield
        finally:
            self.sizes, self.trues, self.least = before
            self._seen.clear()

    def of(self, size: int | torch.SymInt) -> Expr:
        """A size as an expression of the padded symbols alone.

        Raises:
            UnknownSize: It depends on data.
            Unpaddable: A call's may be larger than the bucket's.
        """
        if isinstance(size, int):
            return sympy.Integer(size)
        found = self._seen.get(size.node.expr)
        if found is None:
            found = self._checked(size.node.expr)
            self._seen[size.node.expr] = found
        return found

    def _of_padded(self, expr: Expr) -> Expr:
        fixed = {symbol: value for symbol, value in self.sizes.values.items() if symbol not in self.trues}
        found = sympy.sympify(expr).xreplace(fixed)
        if unknown := found.free_symbols - self.trues.keys():
            raise UnknownSize(", ".join(sorted(map(str, unknown))))
        return found

    def _checked(self, expr: Expr) -> Expr:
        found = self._of_padded(expr)
        if self._grows(found):
            return found
        values = self._all_values(found)
        if len(set(values)) == 1:
            return sympy.Integer(values[0])
        if values and min(values) >= 0 and max(values) <= self.bucket(found):
            return found
        if values and found.free_symbols <= self.unknown.keys():
            return self._named(found, values)
        raise Unpaddable(f"the size {found} may be larger for a smaller call")

    def _named(self, expr: Expr, values: Sequence[int]) -> Expr:
        """A size that is large where those that it is made of are small, as a symbol of its own."""
        symbol = sympy.Symbol(f"({expr})", integer=True)
        true = evaluate(expr, self.trues)
        self.sizes = Sizes({**self.sizes.values, symbol: sympy.Integer(max(values))})
        self.trues[symbol] = lax.max(cast(true, INT32), scalar(0))
        self.least[symbol] = max(min(values), 0)
        return symbol

    def bucket(self, expr: Expr) -> int:
        """A size's value in the bucket."""
        return int(expr.xreplace(self.sizes.values))

    def true(self, expr: Expr) -> Any:
        """A size's true value: an int, or a 0-d int32 array."""
        return int(expr) if expr.is_Integer else cast(evaluate(expr, self.trues), INT32)

    def number(self, size: Any) -> Any:
        """A size of torch's as a number of the program: an int, or a `Size`."""
        if not isinstance(size, torch.SymInt):
            return size
        expr = self._of_padded(size.node.expr)
        if expr.is_number:
            return int(expr)
        return Size(self.bucket(expr), cast(evaluate(expr, self.trues), INT32), expr)

    def _grows(self, expr: Expr) -> bool:
        """Whether the form of an expression says that it never shrinks as its symbols grow."""
        if expr.is_number or expr.is_Symbol:
            return True
        if isinstance(expr, sympy.Add | sympy.Max | sympy.Min | sympy.floor | sympy.ceiling):
            return all(map(self._grows, expr.args))
        if isinstance(expr, sympy.Mul):
            least = {symbol: sympy.Integer(low) for symbol, low in self.least.items()}
            return all(self._grows(each) and each.xreplace(least) >= 0 for each in expr.args)
        if isinstance(expr, functions.FloorDiv):
            base, divisor = expr.args
            return bool(divisor.is_Integer and divisor > 0) and self._grows(base)
        return False

    def _all_values(self, expr: Expr) -> Sequence[int]:
        """What an expression may be in a call, by trying everything; nothing where that is too much."""
        symbols = sorted(expr.free_symbols, key=str)
        ranges = [range(self.least[s], int(self.sizes.values[s]) + 1) for s in symbols]
        if reduce(operator.mul, map(len, ranges), 1) > _TRIES:
            return ()
        names = [self.names.get(symbol, "") for symbol in symbols]
        guards = [guard for guard in self.guards if dim_symbols(guard) <= set(names)]
        return [
            int(expr.xreplace(dict(zip(symbols, map(sympy.Integer, values), strict=True))))
            for values in itertools.product(*ranges)
            if all(guard_holds(guard, dict(zip(names, values, strict=True))) for guard in guards)
        ]


def extents_of(
    entry: LegalEntry, bound: Sizes, sizes: Mapping[str, int], least: Mapping[str, int], true: Array
) -> Extents:
    """What the symbols of an entry point's graph are.

    `bound` has them in the bucket, and `sizes` the Dims; `least` are the Dims of which calls are padded, with
    the smallest size of each, and `true` is the vector of their sizes in a call.
    """
    symbols = {name: sympy.Symbol(name, integer=True) for name in least}
    names: Any = {**{name: sympy.Integer(size) for name, size in sizes.items()}, **symbols}
    # A dim is arithmetic, on expressions too.
    shapes = [[evaluate_dim(dim, names) for dim in spec.dims] for spec in entry.signature.tensor_inputs]
    related = relations(hops.placeholders(entry.graph), shapes)
    padded = {symbol: expr for symbol, expr in related.items() if expr.free_symbols}
    given = (lax.index_in_dim(true, place, keepdims=False) for place in range(len(least)))
    known = dict(zip(symbols.values(), given, strict=True))
    lows = {symbols[name]: sympy.Integer(low) for name, low in least.items()}
    return Extents(
        bound,
        {symbol: scalar(evaluate(expr, known)) for symbol, expr in padded.items()},
        {symbol: int(expr.xreplace(lows)) for symbol, expr in padded.items()},
        unbacked.sizes(entry.graph),
        {symbol: expr.name for symbol, expr in padded.items() if expr.is_Symbol},
        entry.signature.guards,
    )


def _divide(left: Any, right: Any) -> Any:
    return jnp.floor_divide(left, right) if is_array(left) or is_array(right) else left // right


_OPERATORS: Final[Mapping[type, Callable[..., Any]]] = {
    **dict.fromkeys((functions.FloorDiv, functions.CleanDiv), _divide),
    **dict.fromkeys((functions.Mod, functions.PythonMod, sympy.Mod), operator.mod),
    **dict.fromkeys((functions.Max, sympy.Max), lambda *values: reduce(jnp.maximum, values)),
    **dict.fromkeys((functions.Min, sympy.Min), lambda *values: reduce(jnp.minimum, values)),
    functions.PowByNatural: operator.pow,
    # Sizes that were scaled by a float, as those of `interpolate` are.
    functions.ToFloat: lambda value: cast(value, FLOAT64),
    functions.FloatTrueDiv: operator.truediv,
    functions.IntTrueDiv: lambda left, right: cast(left, FLOAT64) / cast(right, FLOAT64),
    functions.TruncToInt: lambda value: cast(value, INT32),
    functions.FloorToInt: lambda value: cast(jnp.floor(value), INT32),
    functions.CeilToInt: lambda value: cast(jnp.ceil(value), INT32),
    functions.RoundToInt: lambda value: cast(jnp.rint(value), INT32),
}


def evaluate(expr: Expr, values: Mapping[sympy.Symbol, Any]) -> Any:
    """An expression of sizes over arrays, in int32.

    Raises:
        UnknownSize: It holds a function that sizes are not made of.
    """
    if expr.is_Integer:
        return int(expr)
    if expr.is_Float:
        return float(expr)
    if expr.is_Symbol:
        return cast(values[expr], INT32)
    if isinstance(expr, sympy.Add | sympy.Mul):
        # A sum such as s/2 + 1/2 is whole, and its terms are not.
        parts = sympy.fraction(sympy.together(expr))
        if parts[1] != 1:
            return _divide(*_each(parts, values))
        join = operator.add if isinstance(expr, sympy.Add) else operator.mul
        return reduce(join, _each(expr.args, values))
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and expr.exp > 0:
        return evaluate(expr.base, values) ** int(expr.exp)
    if isinstance(expr, sympy.floor):
        return evaluate(expr.args[0], values)
    function = _OPERATORS.get(type(expr))
    if function is None:
        raise UnknownSize(str(expr))
    return function(*_each(expr.args, values))


def _each(exprs: Sequence[Any], values: Mapping[sympy.Symbol, Any]) -> list[Any]:
    return [evaluate(each, values) for each in exprs]


def scalar(value: Any) -> Array:
    """A true size as a 0-d int32 array."""
    return value if is_array(value) else lax.full((), int(value), INT32)
