"""Finds the size of each symbol of a signature from the shapes of a call, or says which dim is wrong.

IREE computes on whatever sizes it is given, beyond the end of a buffer if need be, so that every size is
checked here: ranks, fixed sizes, ranges of symbols, and dims that must agree. Where a dim is a symbol or an
affine form of one (`2*d`, `d + 1`) the symbol is solved for; every other dim is evaluated and compared.

Raises `InputShape`, which names the input, what it is and what it should be. Torch-free.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from aotpipe.core.signature import Dim, Symbol, TensorSpec, dim_symbols, evaluate_dim, guard_holds
from aotpipe.errors import InputShape

Shape = tuple[int, ...]

# Shapes of earlier calls are remembered, so that a server's steady state is one lookup.
_MAX_CACHED: Final = 1024
# Sizes that are tried for symbols that only stand in forms without an inverse, such as `d // 2`, `a + b`.
_TRIES: Final = 20_000
# What a form is made of whose degree is at most the number of its symbols.
_POLYNOMIAL: Final = (
    *(ast.Constant, ast.Name, ast.expr_context, ast.BinOp, ast.UnaryOp),
    *(ast.Add, ast.Sub, ast.Mult, ast.USub),
)


class Affine(NamedTuple):
    """`scale * symbol + offset`, with a scale that is not 0."""

    scale: int
    symbol: str
    offset: int


class _InputDim(NamedTuple):
    number: int
    axis: int


class Binder:
    """Binds the symbols of one signature; may be used by several threads at once.

    `bind` gets the shapes in the order of `specs`. A symbol without a range is only held to at least 0;
    `guards` are conditions on the symbols.
    """

    def __init__(
        self, specs: Sequence[TensorSpec], symbols: Sequence[Symbol], guards: Sequence[str] = ()
    ) -> None:
        self._specs = tuple(specs)
        self._guards = tuple(guards)
        self._ranges = {symbol.name: symbol for symbol in symbols}
        self._dims = [
            (_InputDim(number, axis), dim)
            for number, spec in enumerate(specs)
            for axis, dim in enumerate(spec.dims)
        ]
        self._solved, self._searched = self._sources()
        self._cached = lru_cache(_MAX_CACHED)(self._bind)

    def bind(self, shapes: tuple[Shape, ...]) -> Mapping[str, int]:
        """The size of each symbol that the inputs mention.

        Raises:
            InputShape: The shapes do not fit the signature.
        """
        return self._cached(shapes)

    def _bind(self, shapes: tuple[Shape, ...]) -> Mapping[str, int]:
        for number, (spec, shape) in enumerate(zip(self._specs, shapes, strict=True)):
            if len(shape) != len(spec.dims):
                raise self._error(number, shape, f"has {len(shape)} dims, wants {len(spec.dims)}")
            for axis, (size, dim) in enumerate(zip(shape, spec.dims, strict=True)):
                if isinstance(dim, int) and size != dim:
                    raise self._size_error(_InputDim(number, axis), shapes, str(dim))
        sizes = {name: self._solve(source, form, shapes) for name, (source, form) in self._solved.items()}
        if self._searched:
            sizes = self._search(shapes, sizes)
        self._verify(shapes, sizes)
        for guard in self._guards:
            if not _holds(guard, sizes):
                given = ", ".join(f"{name}={size}" for name, size in sizes.items())
                raise InputShape(f"the program takes no {given}", reason=f"it was made for {guard}")
        return sizes

    def _sources(self) -> tuple[dict[str, tuple[_InputDim, Affine]], dict[str, _InputDim]]:
        """Per symbol the dim to solve it from, plain symbols before derived ones; else a dim to name."""
        forms: dict[str, list[tuple[_InputDim, Affine]]] = {}
        mentioned: dict[str, _InputDim] = {}
        for source, dim in self._dims:
            for name in sorted(dim_symbols(dim)):
                mentioned.setdefault(name, source)
            if (form := affine(dim)) is not None:
                forms.setdefault(form.symbol, []).append((source, form))
        solved = {
            name: min(found, key=lambda each: (abs(each[1].scale), abs(each[1].offset)))
            for name, found in forms.items()
        }
        return solved, {name: source for name, source in mentioned.items() if name not in solved}

    def _solve(self, source: _InputDim, form: Affine, shapes: tuple[Shape, ...]) -> int:
        size, dim = shapes[source.number][source.axis], self._specs[source.number].dims[source.axis]
        value, rest = divmod(size - form.offset, form.scale)
        if rest:
            raise self._size_error(source, shapes, str(dim))
        low, high = self._range(form.symbol)
        if value < low or (high is not None and value > high):
            span = f"{form.symbol} in {low}..{'' if high is None else high}"
            want = span if form.scale == 1 and not form.offset else f"{dim} with {span}"
            error = self._size_error(source, shapes, want)
            ends = [form.scale * end + form.offset for end in (low, high) if end is not None]
            nearest = min(ends, key=lambda end: abs(end - size))
            error.hint = f"the nearest size is {nearest}; build with a wider range to allow others"
            raise error
        return value

    def _search(self, shapes: tuple[Shape, ...], solved: Mapping[str, int]) -> dict[str, int]:
        """The first sizes of the symbols without an inverse that all dims agree with."""
        names = tuple(self._searched)
        tries = 0

        def extend(sizes: dict[str, int]) -> dict[str, int] | None:
            nonlocal tries
            if len(sizes) == len(solved) + len(names):
                return sizes
            name = names[len(sizes) - len(solved)]
            low, high = self._range(name)
            for value in itertools.count(low) if high is None else range(low, high + 1):
                tries += 1
                if tries > _TRIES:
                    return None
                tried = {**sizes, name: value}
                fits = all(
                    size_of(dim, tried) in (shapes[number][axis], None)
                    for (number, axis), dim in self._dims
                    if name in dim_symbols(dim)
                )
                if fits and (found := extend(tried)) is not None:
                    return found
            return None

        found = extend(dict(solved))
        if found is None:
            number, axis = source = self._searched[names[0]]
            ranges = ", ".join(str(self._ranges.get(name, name)) for name in names)
            raise self._size_error(source, shapes, f"{self._specs[number].dims[axis]} with {ranges}")
        return found

    def _range(self, name: str) -> tuple[int, int | None]:
        symbol = self._ranges.get(name)
        return (symbol.min, symbol.max) if symbol else (0, None)

    def _verify(self, shapes: tuple[Shape, ...], sizes: Mapping[str, int]) -> None:
        """Compare every dim with its value; the first that differs is the error."""
        for source, dim in self._dims:
            want = size_of(dim, sizes)
            if shapes[source.number][source.axis] != want:
                bound = [
                    f"`{name}` is {sizes[name]} by {self._origin(name)}" for name in sorted(dim_symbols(dim))
                ]
                wanted = str(dim) if want is None else f"{dim} = {want}"
                raise self._size_error(source, shapes, wanted, *bound)

    def _origin(self, name: str) -> str:
        source = self._solved[name][0] if name in self._solved else self._searched[name]
        return f"dim {source.axis} of {self._specs[source.number].name!r}"

    def _size_error(
        self, source: _InputDim, shapes: tuple[Shape, ...], wanted: str, *reasons: str
    ) -> InputShape:
        number, axis = source
        shape = shapes[number]
        return self._error(number, shape, f"has size {shape[axis]} in dim {axis}, wants {wanted}", *reasons)

    def _error(self, number: int, shape: Shape, what: str, *reasons: str) -> InputShape:
        spec = self._specs[number]
        dims = ", ".join(map(str, spec.dims))
        got = f"got shape [{', '.join(map(str, shape))}], want [{dims}]"
        return InputShape(f"input {spec.name!r} {what}", reason="\n".join([got, *reasons]))


def _holds(guard: str, sizes: Mapping[str, int]) -> bool:
    try:
        return guard_holds(guard, sizes)
    except ArithmeticError:  # eager would raise, too
        return False


@lru_cache(_MAX_CACHED)
def affine(dim: Dim) -> Affine | None:
    """A dim as `scale * symbol + offset`, None where it has no symbol, several, or is not affine."""
    nodes = [] if isinstance(dim, int) else list(ast.walk(ast.parse(dim, mode="eval").body))
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    if len(set(names)) != 1 or not all(isinstance(node, _POLYNOMIAL) for node in nodes):
        return None
    # A polynomial of at most that degree is a line if it is one at as many sizes and one more.
    try:
        values = [evaluate_dim(dim, {names[0]: size}) for size in range(len(names) + 1)]
    except ArithmeticError:
        return None
    form = Affine(values[1] - values[0], names[0], values[0])
    is_line = values == [form.scale * size + form.offset for size in range(len(values))]
    return form if form.scale and is_line else None


def size_of(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    """A dim's size, None where a symbol is not bound yet or the expression has no value (`8 // 0`)."""
    try:
        return evaluate_dim(dim, sizes)
    except (KeyError, ArithmeticError):
        return None
