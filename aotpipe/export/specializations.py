"""Several programs of one entry point, each for a part of the sizes.

`if x.shape[0] % 2`, `min(n, 512)` or a view that needs a multiple of 8 make torch.export assume something of
a Dim, and refuse the Dim. `export` then traces the model at some sizes of the Dims' ranges, with what is
assumed kept as guards, and goes on with sizes that no program takes, until there are none. A runner takes the
program whose guards a call fulfils. Which size a program is right for follows from its guards alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np
import sympy
import torch
from torch.export import ExportedProgram
from torch.utils._sympy.printers import PythonPrinter  # of torch's symbolic sizes, as Python

from aotpipe.core.dims import Auto, Dim
from aotpipe.core.signature import (
    Constant,
    Signature,
    Symbol,
    TensorSpec,
    admits,
    dim_symbols,
    evaluate_dim,
    guard_holds,
)
from aotpipe.core.stages import CanonicalEntry
from aotpipe.errors import ExportFailed, SourceLine
from aotpipe.export import resized_examples, symbols
from aotpipe.export.diagnosis import COMPARES_SIZES, GuardLog
from aotpipe.export.signatures import input_nodes
from aotpipe.model import source

MOST: Final = 16
"""How many programs one entry point may become."""
_MOST_SIZES: Final = 2048
# A Dim without an end is covered so far; a call beyond is refused unless a program's guards take it.
_UNBOUNDED: Final = 512
# Each is a call of the model. Sizes that are not called are refused at run time as those at which it raises.
_MOST_CALLS: Final = 24
_LONGEST_TEXT: Final = 120

Sizes = Mapping[str, int]


class Unsupported(Exception):
    """A guard cannot be told by the sizes of a call."""


def sizes_of(entry: CanonicalEntry) -> list[Sizes]:
    """The sizes of the Dims' ranges: all of them, or the ends and some of each range in any combination."""
    roots = resized_examples.roots(entry)
    ends = list(map(_ends, roots.values()))
    if math.prod(high - low + 1 for low, high in ends) <= _MOST_SIZES:
        chosen: Any = itertools.product(*(range(low, high + 1) for low, high in ends))
    else:
        random = np.random.default_rng(0)
        columns = [random.integers(low, high, _MOST_SIZES, endpoint=True).tolist() for low, high in ends]
        chosen = [*itertools.product(*ends), *zip(*columns, strict=True)]
    return [dict(zip(roots, each, strict=True)) for each in chosen]


def _ends(dim: Dim) -> tuple[int, int]:
    return dim.min, max(dim.min, 1) + _UNBOUNDED if dim.max is None else dim.max


def at(entry: CanonicalEntry, sizes: Sizes, number: int) -> CanonicalEntry:
    """The entry point with an example of some sizes; `number` of its programs come before."""
    args, kwargs = resized_examples.resized(entry, sizes)
    return replace(
        entry,
        name=f"{entry.name}__{number + 1}" if number else entry.name,
        specializes=entry.name if number else "",
        guarded=True,
        entry=replace(entry.entry, args=args, kwargs=kwargs),
    )


class Raising:
    """Which sizes of the Dims' ranges the model itself raises at: no program is made for them.

    Attributes:
        said: What the model raised first, and where; empty while it answers.
        where: The model's line that raised first.
    """

    def __init__(self, entry: CanonicalEntry) -> None:
        self.said = ""
        self.where: SourceLine | None = None
        self._raises: dict[tuple[int, ...], bool] = {}
        self._entry = entry
        self._roots = resized_examples.roots(entry)
        self._example = resized_examples.values(entry)
        self._asked = 0

    def next_sizes(self, left: Sequence[Sizes]) -> tuple[Sizes | None, Sequence[Sizes]]:
        """The sizes to trace next, and those of `left` at which the model is not known to raise.

        They are inside the ranges where there are such, and near the example's at first. Later ones are any
        of these: of the programs that are left, the one that takes most sizes is the likeliest. They are None
        where the model raises at all sizes that were called.
        """
        self._asked += 1
        sizes = self._chosen(left)
        if not self._raises_at(sizes):
            return sizes, left
        places = np.random.default_rng(0).permutation(len(left))[:_MOST_CALLS].tolist()
        called = [left[place] for place in places]
        answering = [each for each in called if not self._raises_at(each)]
        if not answering:
            return None, ()
        left = [each for each in left if not self._raises.get(tuple(each.values()))]
        return self._chosen(answering), left

    def _raises_at(self, sizes: Sizes) -> bool:
        key = tuple(sizes.values())
        if key not in self._raises:
            error = resized_examples.raised(self._entry, sizes)
            self._raises[key] = error is not None
            if error is not None and not self.said:
                named = ", ".join(f"{name} = {size}" for name, size in sizes.items())
                text = next(iter(str(error).splitlines()), "")[:_LONGEST_TEXT]
                self.said = f"the model raises {type(error).__name__} where {named}: {text}"
                self.where = source.from_exception(error)
        return self._raises[key]

    def _chosen(self, left: Sequence[Sizes]) -> Sizes:
        def special(sizes: Sizes) -> int:
            return sum(
                size < 2 or size in (self._roots[name].min, self._roots[name].max)
                for name, size in sizes.items()
            )

        def distance(sizes: Sizes) -> int:
            return sum(abs(size - self._example[name]) for name, size in sizes.items())

        least = min(map(special, left))
        usual = [each for each in left if special(each) == least]
        if self._asked == 1:
            return min(usual, key=distance)
        return usual[int(np.random.default_rng(self._asked).integers(len(usual)))]


def is_hopeless(found: int, left: int, total: int) -> bool:
    """Whether `MOST` programs are reached, or more than as many again would have to be made.

    The latter is told by how many sizes a program takes on average. The first two say little about it: they
    are near the example, which is often of few sizes (a multiple that needs no padding).
    """
    average = (total - left) / found
    return found >= MOST or (found > 2 and left > average * MOST)


def with_fewer_sizes(hint: str, found: int, left: int, total: int) -> str:
    """A hint with what narrower Dims would do, where a program takes few of the sizes."""
    average = (total - left) // found
    if average < 1:
        return hint
    room = f"at most {MOST} programs are made, and one takes about {average} of the {total} sizes of the Dims"
    return f"{hint}{'; or ' if hint else ''}narrow the Dims: {room}"


def takes(entry: CanonicalEntry, signature: Signature, sizes: Sizes) -> bool:
    """Whether a program takes inputs whose Dims have these sizes."""
    leaves = {leaf.name: leaf for leaf in signature.inputs}
    for name, axes in entry.dims.items():
        for axis, dim in axes.items():
            size = _size(leaves[name], axis)
            if isinstance(dim, Auto) or size is None:
                continue
            if evaluate_dim(size, sizes) != dim.size(sizes[dim.name]):
                return False
    return admits(signature, sizes)


def _taken_along(entry: CanonicalEntry, signatures: Sequence[Signature], name: str) -> list[int]:
    """The sizes of one Dim that programs take, beside the example's of the others.

    `sizes_of` has some sizes of several long ranges, which may be none of the few that are taken. Of a range
    longer than that, the sizes around the example's are tried.
    """
    example = resized_examples.values(entry)
    low, high = _ends(resized_examples.roots(entry)[name])
    first = max(low, min(example[name] - _MOST_SIZES // 2, high - _MOST_SIZES))
    return [
        size
        for size in range(first, min(high, first + _MOST_SIZES) + 1)
        if any(takes(entry, signature, {**example, name: size}) for signature in signatures)
    ]


def without(entry: CanonicalEntry, names: Collection[str]) -> dict[str, dict[int, Dim | Auto]]:
    """The Dims of an entry point but those of some names, whose sizes are the example's."""
    return {
        name: {axis: dim for axis, dim in axes.items() if not (isinstance(dim, Dim) and dim.name in names)}
        for name, axes in entry.dims.items()
    }


def is_fixed(entry: CanonicalEntry, signatures: Sequence[Signature]) -> bool:
    """Whether a Dim does not vary: of its sizes, programs take one alone beside 0 and 1, which broadcast."""
    return any(
        len({*_taken_along(entry, signatures, name)} - {0, 1}) < 2 < len({*range(low, high + 1)} - {0, 1})
        for name, (low, high) in ((name, _ends(dim)) for name, dim in resized_examples.roots(entry).items())
    )


def multiples(
    entry: CanonicalEntry, signature: Signature, every: Sequence[Sizes]
) -> dict[str, dict[int, Dim | Auto]] | None:
    """The Dims of an entry point with multiples in their place (`8 * n` for `h`).

    None where a program takes something else than all multiples of a number for each Dim.
    """
    roots = resized_examples.roots(entry)
    if any(high - low > _MOST_SIZES for low, high in map(_ends, roots.values())):
        return None
    values = {name: _taken_along(entry, [signature], name) for name in roots}
    ends = {name: (min(each, default=0), max(each, default=0)) for name, each in values.items()}
    factors = {name: math.gcd(*each) for name, each in values.items()}
    if any(low == high or not low for low, high in ends.values()) or max(factors.values()) < 2:
        return None

    def is_multiple(sizes: Sizes) -> bool:
        return all(
            low <= sizes[name] <= high and not sizes[name] % factors[name]
            for name, (low, high) in ends.items()
        )

    if any(values[name] != [*range(low, high + 1, factors[name])] for name, (low, high) in ends.items()):
        return None
    if any(is_multiple(sizes) is not takes(entry, signature, sizes) for sizes in every):
        return None
    made: dict[str, Dim] = {}
    for name, root in roots.items():
        (low, end), factor = ends[name], factors[name]
        high = None if root.max is None else end // factor
        label = name if factor == 1 else symbols.identifier(f"{name}_{factor}", {*roots, *made})
        made[name] = factor * Dim(label, low // factor, high)
    return {
        name: {
            axis: dim.scale * made[dim.name] + dim.offset if isinstance(dim, Dim) else dim
            for axis, dim in axes.items()
        }
        for name, axes in entry.dims.items()
    }


def divisors(entry: CanonicalEntry, dims: Mapping[str, Mapping[int, Dim | Auto]]) -> tuple[str, ...]:
    """The guards that say of which numbers the Dims are multiples, given what `multiples` gave."""
    return tuple(f"{name} % {each} == 0" for name, each in _factors(entry, dims).items() if each > 1)


def widened(
    entry: CanonicalEntry, signature: Signature, dims: Mapping[str, Mapping[int, Dim | Auto]]
) -> tuple[Symbol, ...]:
    """The symbols of a signature, with the range of a Dim where it has no multiple beyond theirs."""
    roots, factors = resized_examples.roots(entry), _factors(entry, dims)
    found = []
    for symbol in signature.symbols:
        root, factor = roots.get(symbol.name), factors.get(symbol.name, 1)
        low, high = symbol.min, symbol.max
        if root is not None:
            low = root.min if low - factor < root.min else low
            high = root.max if high is None or root.max is None or high + factor > root.max else high
        found.append(Symbol(symbol.name, low, high))
    return tuple(found)


def _factors(entry: CanonicalEntry, dims: Mapping[str, Mapping[int, Dim | Auto]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, axes in entry.dims.items():
        for axis, dim in axes.items():
            multiple = dims[name][axis]
            if isinstance(dim, Dim) and isinstance(multiple, Dim):
                found[dim.name] = multiple.scale // dim.scale
    return found


def _size(leaf: TensorSpec | Constant, axis: int) -> int | str | None:
    """The size of a dim, or a fixed number; None for a number that varies."""
    if isinstance(leaf, Constant):
        return leaf.value if isinstance(leaf.value, int) else None
    return leaf.dims[axis] if leaf.dims else None


def require_no_comparison(
    entry: CanonicalEntry, program: ExportedProgram, signature: Signature, log: GuardLog
) -> None:
    """Refuse what a program assumes of several Dims together: torch.export compares only each with its range.

    Raises:
        ExportFailed: A call with sizes inside of the ranges would take the path of the example's sizes.
    """
    env = symbols.environment(program.graph)
    together = [guard.expr for guard in env.guards if len(guard.expr.free_symbols) > 1] if env else []
    if not together:
        return
    given = {sympy.Symbol(name, integer=True, nonnegative=True) for name in resized_examples.roots(entry)}
    try:
        taken = [sizes for sizes in sizes_of(entry) if takes(entry, signature, sizes)]
        known, _ = _conditions(entry, program)
        texts = [_text(guard, taken) for guard in known if guard.free_symbols <= given]
        assumed = next((text for text in texts if not all(guard_holds(text, each) for each in taken)), None)
    except Unsupported as error:
        assumed = str(error)
    if assumed is not None:
        raise ExportFailed(
            f"{entry.name} {COMPARES_SIZES}",
            reason=f"the program holds where {assumed}, and the Dims allow other sizes",
            hint="narrow the Dims, or give the other sizes an entry point of their own",
            where=next((line for text, line in log.guards if text == str(together[0])), None),
        )


def guarded(
    entry: CanonicalEntry, program: ExportedProgram, signature: Signature, every: Sequence[Sizes]
) -> Signature:
    """The signature with what the program assumes of the sizes.

    Args:
        entry: The entry point at one choice of sizes.
        program: Its program, exported with guards kept.
        signature: Of the program.
        every: The sizes that are to be told apart.

    Raises:
        Unsupported: It assumes something of what is no size of an input.
    """
    known, ranges = _conditions(entry, program)
    given = {name for spec in signature.tensor_inputs for dim in spec.dims for name in dim_symbols(dim)}
    signature = replace(_within(signature, ranges), specializes=entry.specializes)
    taken = [sizes for sizes in every if takes(entry, signature, sizes)]
    guards = list(dict.fromkeys(_text(guard, taken) for guard in known))
    for text in guards:
        if others := dim_symbols(text) - given:
            raise Unsupported(f"{text} depends on {', '.join(others)}")
    if len(every) > _MOST_SIZES:
        return replace(signature, guards=tuple(guards))
    # All sizes are known: a range says what it can, and no guard says again what those before it say.
    taken = [sizes for sizes in taken if all(guard_holds(guard, sizes) for guard in guards)]
    ends = {name: [sizes[name] for sizes in taken] for name in (taken[0] if taken else ())}
    signature = _within(signature, {name: (min(each), max(each)) for name, each in ends.items()})
    left = [sizes for sizes in every if takes(entry, signature, sizes)]
    kept: list[str] = []
    for guard in guards:
        if not all(guard_holds(guard, sizes) for sizes in left):
            kept.append(guard)
            left = [sizes for sizes in left if guard_holds(guard, sizes)]
    return replace(signature, guards=tuple(kept))


def _within(signature: Signature, ranges: Mapping[str, tuple[int, int | None]]) -> Signature:
    """The signature with symbols in these ranges at most."""
    found = []
    for symbol in signature.symbols:
        low, high = ranges.get(symbol.name, (0, None))
        ends = [end for end in (symbol.max, high) if end is not None]
        found.append(Symbol(symbol.name, max(symbol.min, low), min(ends, default=None)))
    return replace(signature, symbols=tuple(found))


def _conditions(
    entry: CanonicalEntry, program: ExportedProgram
) -> tuple[list[Any], dict[str, tuple[int, int | None]]]:
    """The guards over the Dims' names, and the range of each Dim that stands for itself."""
    named: dict[sympy.Symbol, Any] = {}
    ranges: dict[str, tuple[int, int | None]] = {}
    known: list[Any] = []
    for name, node in input_nodes(entry, program).items():
        value = node.meta["val"]
        for axis, dim in entry.dims.get(name, {}).items():
            size = value.shape[axis] if isinstance(value, torch.Tensor) else value
            if not isinstance(dim, Dim) or not isinstance(size, torch.SymInt) or size.node.expr.is_Integer:
                continue
            expr = size.node.expr
            if expr.free_symbols <= set(named):
                continue  # the trace has found two sizes to be one
            root = sympy.Symbol(dim.name, integer=True, nonnegative=True)
            solved = sympy.solve(expr - (dim.scale * root + dim.offset), *expr.free_symbols)
            if len(expr.free_symbols) != 1 or len(solved) != 1:
                raise Unsupported(f"the size of {name} at dim {axis} is {expr}")
            (symbol,), (named[symbol],) = expr.free_symbols, solved
            low, high = symbols.bounds(size.node.shape_env.var_to_range[symbol])
            if named[symbol] == root:
                ranges[dim.name] = (low, high)
            else:
                known += [named[symbol] >= low, *([named[symbol] <= high] if high is not None else [])]
    env = symbols.environment(program.graph)
    if env is None:
        return known, ranges
    same = dict(env.replacements)
    for _ in same:  # one may be in terms of another one
        same = {symbol: value.xreplace(same) for symbol, value in same.items()}
    known += [guard.expr.xreplace(same).xreplace(named) for guard in env.guards]
    return [each for each in known if each is not sympy.true], ranges


class _Printer(PythonPrinter):
    """Prints guards as `guard_holds` reads them."""

    def _print_Float(self, expr: Any) -> str:  # noqa: N802  # sympy's names
        return repr(float(expr))

    def _print_ToFloat(self, expr: Any) -> str:  # noqa: N802
        return f"float({self._print(expr.args[0])})"

    def _helper_sqrt(self, expr: Any) -> str:
        return f"sqrt({self._print(expr)})"


def _text(guard: Any, every: Sequence[Sizes]) -> str:
    """A guard in words of its own, compared with the guard at some sizes."""
    text = str(_Printer().doprint(guard)).replace("math.", "")
    by_name = {symbol.name: symbol for symbol in guard.free_symbols}
    try:
        for sizes in every[:: max(len(every) // 8, 1)]:
            values = {symbol: sympy.Integer(sizes[name]) for name, symbol in by_name.items()}
            if guard_holds(text, sizes) is not _holds(guard, values):
                raise Unsupported(f"{text} is not what torch assumes")
    except (KeyError, ValueError, SyntaxError, TypeError, ArithmeticError) as error:
        raise Unsupported(f"{guard}: {error}") from error
    return text


def _holds(guard: Any, values: Mapping[sympy.Symbol, sympy.Integer]) -> bool:
    with suppress(ZeroDivisionError):
        return bool(guard.xreplace(values))
    return False
