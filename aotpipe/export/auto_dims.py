"""Sizes under AUTO: which of them vary, and within which range the program holds.

torch.export drops an AUTO size that must be a constant without a word, and leaves conditions such as
`s % 16 == 0` for the caller to check. Here every AUTO size ends as one of: a size of a plain range, a
multiple `16*x_0`, or a constant, which a finding names with the user's line.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor  # the public name of its module gives no type
from torch.export import ExportedProgram
from torch.utils._sympy import functions as fn  # torch's symbolic sizes are made of these classes

from aotpipe.canonicalize.inputs import pytrees
from aotpipe.core.dims import Auto, Dim
from aotpipe.core.stages import CanonicalEntry, Finding
from aotpipe.export import diagnosis, resized_examples, symbols
from aotpipe.export.signatures import input_nodes
from aotpipe.export.strategies import Traced

_PROBED: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What became of the AUTO sizes.

    Attributes:
        dims: What varies, or shall vary when it is exported again.
        again: Whether the program varies more than `dims` do, because a condition is no range.
        ranges: Input name and axis -> range of an AUTO size that varies.
    """

    dims: dict[str, dict[int, Dim | Auto]]
    again: bool
    ranges: Mapping[tuple[str, int], tuple[int, int | None]]
    findings: tuple[Finding, ...]


def without_auto(dims: Mapping[str, Mapping[int, Dim | Auto]]) -> dict[str, dict[int, Dim | Auto]]:
    """The named Dims alone."""
    return {name: {axis: d for axis, d in axes.items() if isinstance(d, Dim)} for name, axes in dims.items()}


def write_constants(program: ExportedProgram) -> None:
    """Give inputs whose sizes torch found to be constants these numbers.

    It leaves a symbol that stands for a number, which the compilers take for a size that varies.
    """
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if not isinstance(value, FakeTensor) or not value._has_symbolic_sizes_strides:  # noqa: SLF001
            continue
        shape, strides = (tuple(map(_number, each)) for each in (value.shape, value.stride()))
        if any(map(operator.is_not, (*shape, *strides), (*value.shape, *value.stride()))):
            with value.fake_mode:
                node.meta["val"] = torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)


def _number(size: int | torch.SymInt) -> int | torch.SymInt:
    known = size.node.maybe_as_int() if isinstance(size, torch.SymInt) else None
    return size if known is None else known


def resolve(entry: CanonicalEntry, traced: Traced) -> Resolved:
    """Read what became of each AUTO size in an exported program."""
    kept = {name: dict(axes) for name, axes in entry.dims.items()}
    ranges: dict[tuple[str, int], tuple[int, int | None]] = {}
    findings: list[Finding] = []
    multiples: dict[sympy.Symbol, Dim | None] = {}
    again = False
    env = symbols.environment(traced.program.graph)
    # The program's conditions on sizes, as sympy booleans over its symbols.
    guards = [env.simplify(guard.expr) for guard in env.guards] if env is not None else []
    for name, axis, auto, size in _auto_sizes(entry, traced):
        expr = size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)
        if not expr.free_symbols:
            del kept[name][axis]
            findings.append(_static(entry, name, axis, int(expr), traced))
            continue
        if not isinstance(expr, sympy.Symbol):
            continue
        about = [guard for guard in guards if expr in guard.free_symbols]
        low, high, factor = _range_of(expr, auto, traced, about)
        if factor == 1:
            ranges[name, axis] = (low, high)
            continue
        again = True
        multiple = multiples.setdefault(expr, _multiple(low, high, factor, f"{name}_{axis}", entry))
        if multiple is not None:
            kept[name][axis] = multiple
        else:
            del kept[name][axis]
        findings.append(_conditional(entry, name, axis, multiple, expr, about, traced))
    return Resolved(dims=kept, again=again, ranges=ranges, findings=tuple(findings))


def _auto_sizes(entry: CanonicalEntry, traced: Traced) -> Iterator[tuple[str, int, Auto, int | torch.SymInt]]:
    examples = pytrees.example_leaves(entry)
    for name, node in input_nodes(entry, traced.program).items():
        value = node.meta["val"]
        for axis, dim in entry.dims.get(name, {}).items():
            if isinstance(dim, Auto):
                example = examples.get(name)
                is_empty = isinstance(example, torch.Tensor) and not example.shape[axis]
                # A program takes its own example.
                auto = dim(min=0, max=dim.max) if is_empty and dim.min is None else dim
                yield name, axis, auto, value.shape[axis] if isinstance(value, torch.Tensor) else value


def _range_of(
    symbol: sympy.Symbol, auto: Auto, traced: Traced, guards: list[Any]
) -> tuple[int, int | None, int]:
    """Where all conditions on a symbol hold: the lowest and highest size, and the factor that divides all.

    The factor is 0 where the conditions say something else.
    """
    low, high = symbols.bounds(traced.program.range_constraints[symbol])
    low = max(low, 1 if auto.min is None else auto.min)
    if auto.max is not None:
        high = auto.max if high is None else min(high, auto.max)
    if any(guard.free_symbols != {symbol} for guard in guards):
        return low, high, 0
    top = low + _PROBED if high is None else min(high, low + _PROBED)
    probed = range(low, top + 1)
    holding = [
        v for v in probed if all(guard.xreplace({symbol: sympy.Integer(v)}) is sympy.true for guard in guards)
    ]
    if not holding:
        return low, high, 0
    if holding == list(probed[probed.index(holding[0]) :]):
        return holding[0], high, 1
    factor = _factor(symbol, guards)
    expected = [v for v in probed if v % factor == 0 and v >= holding[0]]
    return holding[0], high, factor if factor > 1 and holding == expected else 0


def _factor(symbol: sympy.Symbol, guards: list[Any]) -> int:
    """The k where the conditions say that `symbol` is a multiple of k; 1 where they say something else."""
    factor = 1
    for guard in guards:
        for mod in guard.atoms(fn.Mod, fn.PythonMod, sympy.Mod):
            term, modulus = mod.args
            coefficient = term.coeff(symbol)
            if modulus.is_Integer and coefficient.is_Integer and term == coefficient * symbol:
                factor = math.lcm(factor, int(modulus) // math.gcd(int(coefficient), int(modulus)))
    return factor


def _multiple(low: int, high: int | None, factor: int, name: str, entry: CanonicalEntry) -> Dim | None:
    """A Dim of the multiples in a range; None where they are less than two."""
    if not factor:
        return None
    low, high = -(-low // factor), None if high is None else high // factor
    if high is not None and high <= low:
        return None
    return factor * Dim(symbols.identifier(name, resized_examples.roots(entry)), low, high)


def _static(entry: CanonicalEntry, name: str, axis: int, size: int, traced: Traced) -> Finding:
    place = f"{name}.shape[{axis}]"
    symbol = next((s for src, s in traced.log.symbols.items() if diagnosis.readable(src) == place), None)
    guard = traced.log.about(symbol) if symbol else None
    why = "the model needs that size" if guard else "torch.export fixes a size of 0 or 1"
    hint, where = "leave its AUTO out, or change the line that needs the size", guard[1] if guard else None
    return entry.finding(
        "auto-dim-static", f"{place} is fixed at {size}: {why}", hint=hint, where=where, warns=True
    )


def _conditional(
    entry: CanonicalEntry,
    name: str,
    axis: int,
    multiple: Dim | None,
    symbol: sympy.Symbol,
    conditions: list[Any],
    traced: Traced,
) -> Finding:
    place = f"{name}.shape[{axis}]"
    where = next((line for text, line in traced.log.guards if line and str(symbol) in text), None)
    found = partial(entry.finding, hint="name the sizes with Dims to say more", where=where)
    if multiple is not None:
        message = f"{place} varies in multiples of {multiple.scale}, as the model needs"
        return found("auto-dim-multiple", message)
    needs = ", ".join(str(guard).replace(str(symbol), place) for guard in conditions)
    message = f"{place} is fixed at the example's size: the model needs {needs}"
    return found("auto-dim-static", message, warns=True)
