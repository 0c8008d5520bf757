"""torch's symbolic sizes under the user's names, as dim expressions.

Takes sympy expressions over torch's symbols (`s77`, `u0`), gives strings in the grammar of
`signature.evaluate_dim` over names such as `batch`. For sizes that the expression's own rules allow,
`evaluate_dim(expression(e), sizes)` is the value of `e` at these sizes. Raises `Unprintable` for an
expression outside the grammar (one that goes through floats).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import sympy
import torch
from torch.fx import Graph
from torch.utils._sympy import functions as fn  # torch's symbolic sizes are made of these classes
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from aotpipe.core.signature import Dim, Symbol, TensorSpec

_UNBOUNDED: Final = 2**62
WIDE: Final = ValueRanges(0, sympy.oo)


class Unprintable(ValueError):
    """An expression outside the grammar."""


def environment(graph: Graph) -> Any:
    """The ShapeEnv of torch, with the conditions on a graph's sizes; None where nothing is a tensor."""
    modes = (getattr(node.meta.get("val"), "fake_mode", None) for node in graph.nodes)
    return next((mode.shape_env for mode in modes if mode is not None), None)


def expression(expr: Any, names: Mapping[sympy.Symbol, str]) -> Dim:
    """Print an expression; a fixed size gives an int.

    Raises:
        Unprintable: It cannot be written with integers alone, or holds a symbol without a name.
    """
    expr = sympy.sympify(expr)
    if expr.is_Integer:
        return int(expr)
    return _print(expr, names)


def _print(expr: sympy.Basic, names: Mapping[sympy.Symbol, str]) -> str:
    if isinstance(expr, sympy.Symbol):
        if expr not in names:
            raise Unprintable(f"no name for {expr}")
        return names[expr]
    if isinstance(expr, sympy.Integer):
        return str(int(expr))
    if isinstance(expr, sympy.Add):
        return _sum(expr, names)
    if isinstance(expr, sympy.Mul):
        return _product(expr, names)
    if isinstance(expr, (fn.CeilToInt, fn.FloorToInt, fn.TruncToInt)):
        return _rounded(expr, names)
    if isinstance(expr, (fn.Max, sympy.Max, fn.Min, sympy.Min)):
        return f"{type(expr).__name__}({', '.join(_print(arg, names) for arg in expr.args)})"
    for kind, template in _TEMPLATES:
        if isinstance(expr, kind):
            return template(*(_wrapped(arg, names) for arg in expr.args))
    raise Unprintable(f"{type(expr).__name__} in {expr}")


def _rounded(expr: sympy.Function, names: Mapping[sympy.Symbol, str]) -> str:
    """A float rounded to a size: exact where the float is a quotient of sizes or a whole multiple of one."""
    (value,) = expr.args
    if isinstance(value, fn.IntTrueDiv):
        kind = fn.CeilDiv if isinstance(expr, fn.CeilToInt) else fn.FloorDiv
        return _print(kind(*value.args), names)
    factor, rest = value.as_coeff_Mul()
    if isinstance(rest, fn.ToFloat) and float(factor).is_integer():
        return _print(int(factor) * rest.args[0], names)
    raise Unprintable(f"the float in {expr}")


def _wrapped(expr: sympy.Basic, names: Mapping[sympy.Symbol, str]) -> str:
    text = _print(expr, names)
    return text if re.fullmatch(r"\w+|(Min|Max)\([^()]*\)", text) else f"({text})"


# CleanDiv is a FloorDiv; torch's Mod and PythonMod agree where nothing is negative, as with sizes.
_TEMPLATES: Final[tuple[tuple[Any, Callable[..., str]], ...]] = (
    (fn.FloorDiv, lambda a, b: f"{a}//{b}"),
    (fn.CeilDiv, lambda a, b: f"-(-{a}//{b})"),
    (fn.ModularIndexing, lambda a, b, m: f"({a}//{b})%{m}"),
    ((fn.Mod, fn.PythonMod, sympy.Mod), lambda a, b: f"{a}%{b}"),
    ((fn.PowByNatural, sympy.Pow), lambda a, b: f"{a}**{b}"),
    (fn.Identity, lambda a: a),
)


def _sum(expr: sympy.Add, names: Mapping[sympy.Symbol, str]) -> str:
    """Terms in the order of their text, the constant last: torch's own names have no say in it."""
    whole, rest = expr.as_coeff_Add()
    text = ""
    for term in sorted(sympy.Add.make_args(rest), key=lambda t: (_print(t, names).lstrip("-"), str(t))):
        text = _joined(text, _print(term, names))
    return _joined(text, _print(whole, names)) if whole else text


def _joined(text: str, term: str) -> str:
    if not text:
        return term
    is_negative = term.startswith("-") and not term.startswith("-(-")
    return f"{text} - {term[1:]}" if is_negative else f"{text} + {term}"


def _product(expr: sympy.Mul, names: Mapping[sympy.Symbol, str]) -> str:
    number, rest = expr.as_coeff_Mul()
    if not isinstance(number, sympy.Rational):
        raise Unprintable(f"the float {number} in {expr}")
    factors, divisors = [], []
    for factor in sympy.Mul.make_args(rest):
        base, power = factor.as_base_exp()
        if power.is_Integer and power < 0:
            divisors.append(_wrapped(base**-power, names))
        else:
            factors.append(_wrapped(factor, names))
    factors.sort()
    if abs(number.p) != 1 or not factors:
        factors.insert(0, str(abs(number.p)))
    text = "*".join(factors)
    if number.q != 1:
        divisors.append(str(number.q))
    if divisors:
        # torch writes an exact division as a product with the inverse.
        text = f"({text})//({'*'.join(divisors)})" if len(factors) > 1 else f"{text}//({'*'.join(divisors)})"
        text = re.sub(r"//\((\w+)\)$", r"//\1", text)
    return f"-{text}" if number.p < 0 and not divisors else f"-({text})" if number.p < 0 else text


def bounds(value_range: Any) -> tuple[int, int | None]:
    """The lower and upper bound of a torch ValueRanges over sizes; None where there is no upper one."""
    low, high = value_range.lower, value_range.upper
    lower = 0 if low in (-int_oo, -sympy.oo) or low < 0 else int(low)
    upper = None if high in (int_oo, sympy.oo) or high >= _UNBOUNDED else int(high)
    return lower, upper


def identifier(text: str, taken: Iterable[str]) -> str:
    """A free symbol name made of an input's or output's name: `batch.mask` gives `batch_mask`."""
    base = re.sub(r"\W", "_", text)
    base = base if base[:1].isalpha() or base.startswith("_") else f"_{base}"
    taken = {*taken, "Min", "Max"}
    names = itertools.chain([base], (f"{base}_{number}" for number in itertools.count(1)))
    return next(name for name in names if name not in taken)


@dataclass(slots=True)
class SymbolNames:
    """torch's symbols under a signature's names.

    Attributes:
        reserved: Names that no symbol may get by itself.
        replaced: What torch's symbols are in names of the signature.
    """

    ranges: Mapping[sympy.Symbol, Any]
    reserved: Collection[str] = ()
    replaced: dict[sympy.Symbol, sympy.Expr] = field(default_factory=dict)
    known: dict[str, Symbol] = field(default_factory=dict)

    def free(self, text: str) -> str:
        """A symbol name that nothing has yet."""
        return identifier(text, {*self.known, *self.reserved})

    def declare(self, name: str, low: int, high: int | None) -> sympy.Symbol:
        """Give the signature a symbol, unless it has it."""
        self.known.setdefault(name, Symbol(name, low, high))
        return sympy.Symbol(name, integer=True)

    def spec(self, name: str, value: torch.Tensor) -> TensorSpec:
        """Describe a tensor."""
        dims = tuple(self.text(size, f"{name}_{axis}") for axis, size in enumerate(value.shape))
        return TensorSpec(name, str(value.dtype).removeprefix("torch."), dims)

    def text(self, size: Any, fallback: str) -> Dim:
        """A size as a dim expression; one that the grammar lacks becomes a symbol called `fallback`."""
        if isinstance(size, int):
            return size
        expr = size.node.expr
        for symbol in sorted(expr.free_symbols - self.replaced.keys(), key=str):
            low, high = bounds(self.ranges.get(symbol, WIDE))
            name = self.free(fallback if expr == symbol else f"{fallback}_{symbol}")
            self.replaced[symbol] = self.declare(name, low, high)
        try:
            named = expr.xreplace(self.replaced)
            return expression(named, {each: each.name for each in named.free_symbols})
        except Unprintable:
            low, high = bounds(size.node.shape_env.bound_sympy(expr))
            return str(self.declare(self.free(fallback), low, high))
