"""The Signature of an exported entry point: names, dtypes, dims over user-named symbols, ranges.

A Dim's symbol keeps its name and range; an AUTO size is called after its input and axis (`x_0`), a size that
depends on values after its output and axis. An integer input that indexes an embedding gets the range of its
rows, so that a call with another index is refused before it reads foreign memory.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx import Node

from aotpipe.core.dims import Auto, Dim
from aotpipe.core.signature import DTYPES, Constant, Signature, TensorSpec
from aotpipe.core.stages import CanonicalEntry
from aotpipe.errors import ExportFailed
from aotpipe.export import resized_examples, symbols
from aotpipe.export.symbols import SymbolNames

_ATEN: Final = torch.ops.aten

Ranges = Mapping[tuple[str, int], tuple[int, int | None]]

_NUMBERS = {torch.SymInt: "int64", torch.SymFloat: "float64", torch.SymBool: "bool"}


def signature(entry: CanonicalEntry, program: ExportedProgram, ranges: Ranges) -> Signature:
    """Describe an exported program, but for its state: only a functional graph tells what is written to.

    `ranges` is by input name and axis, of the AUTO sizes that vary.

    Raises:
        ExportFailed: A tensor of a dtype that no target has, or another structure than in eager mode.
    """
    nodes = input_nodes(entry, program)
    namer = SymbolNames(program.range_constraints, resized_examples.roots(entry))
    for derived in (False, True):
        for name, node in nodes.items():
            for axis, dim in entry.dims.get(name, {}).items():
                _name_dim(namer, name, node.meta["val"], axis, dim, ranges, derived=derived)
    inputs = [_input(entry, namer, name, node) for name, node in nodes.items()]
    fixed = [_constant(name, value) for name, value in entry.constants.items() if name not in nodes]
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    outputs = [_output(namer, name, arg, values) for name, arg in output_arguments(entry, program).items()]
    return Signature(
        inputs=(*inputs, *fixed),
        outputs=tuple(outputs),
        symbols=tuple(namer.known.values()),
        optional=entry.adapter.structure.presences() if entry.adapter else (),
        optional_outputs=entry.adapter.presences() if entry.adapter else (),
    )


def _name_dim(
    namer: SymbolNames, name: str, value: Any, axis: int, dim: Dim | Auto, ranges: Ranges, *, derived: bool
) -> None:
    """Give the symbol of one axis its name; plain symbols first, so that derived sizes find theirs."""
    size = value.shape[axis] if isinstance(value, torch.Tensor) else value
    if not isinstance(size, torch.SymInt):
        return
    expr = size.node.expr
    if derived == (isinstance(expr, sympy.Symbol) and not (isinstance(dim, Dim) and dim != dim.root)):
        return
    unnamed = expr.free_symbols - namer.replaced.keys()
    if len(unnamed) != 1:
        return
    (symbol,) = unnamed
    if isinstance(dim, Dim):
        root = namer.declare(dim.name, dim.min, dim.max)
        wanted = dim.scale * root + dim.offset
        solved = sympy.solve(expr - wanted, symbol)
        namer.replaced[symbol] = solved[0] if len(solved) == 1 else root
    elif expr == symbol:
        low, high = ranges.get((name, axis), (0, None))
        label = f"{name}_{axis}" if isinstance(value, torch.Tensor) else name
        namer.replaced[symbol] = namer.declare(namer.free(label), low, high)


def _input(entry: CanonicalEntry, namer: SymbolNames, name: str, node: Node) -> TensorSpec | Constant:
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        bounds = entry.entry.value_ranges.get(name) or index_range(node)
        return replace(_tensor(namer, name, value), value_range=bounds)
    if isinstance(value, torch.SymInt):
        namer.text(value, name)
        low, high = symbols.bounds(namer.ranges.get(value.node.expr, symbols.WIDE))
        dim = entry.dims.get(name, {}).get(0)
        if isinstance(dim, Dim):
            low, high = dim.size(dim.min), None if dim.max is None else dim.size(dim.max)
        return TensorSpec(name, "int64", (), (low, 2**63 - 1 if high is None else high))
    return _constant(name, entry.constants.get(name, value))


def _tensor(namer: SymbolNames, name: str, value: torch.Tensor) -> TensorSpec:
    spec = namer.spec(name, value)
    if spec.dtype not in DTYPES:
        raise ExportFailed(f"{name} is {value.dtype}, which no target has", hint="cast it in the model")
    return spec


def _output(namer: SymbolNames, name: str, arg: Any, values: Mapping[str, Any]) -> TensorSpec | Constant:
    if isinstance(arg, ConstantArgument):
        return _constant(name, arg.value)
    value = values[arg.name]
    if isinstance(value, torch.Tensor):
        return _tensor(namer, name, value)
    dtype = next((text for kind, text in _NUMBERS.items() if isinstance(value, kind)), None)
    return TensorSpec(name, dtype, ()) if dtype else _constant(name, value)


def _constant(name: str, value: object) -> Constant:
    plain = (
        value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))
    )
    return Constant(name, value if plain else repr(value))  # type: ignore[arg-type]


# Placeholders: torch.export keeps the flattening order of `(args, kwargs)` and of the result.


def input_nodes(entry: CanonicalEntry, program: ExportedProgram) -> dict[str, Node]:
    """The placeholder of each input, by the input's name, in order.

    Raises:
        ExportFailed: torch.export flattened the inputs otherwise.
    """
    specs = program.graph_signature.input_specs
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    users = [
        node for node, spec in zip(placeholders, specs, strict=True) if spec.kind is InputKind.USER_INPUT
    ]
    if len(users) != len(entry.input_names):
        raise ExportFailed(
            f"torch.export gave {entry.name} {len(users)} inputs in place of {len(entry.input_names)}",
            hint="report this model: it is a fault of aotpipe",
        )
    return dict(zip(entry.input_names, users, strict=True))


def output_arguments(entry: CanonicalEntry, program: ExportedProgram) -> dict[str, Any]:
    """The argument (a tensor, a symbolic number, a constant) of each output, by name, in order.

    Raises:
        ExportFailed: The traced result is another structure than the eager one.
    """
    specs = [s for s in program.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    if len(specs) != len(entry.output_names):
        raise ExportFailed(
            f"{entry.name} gives {len(specs)} outputs in torch.export, {len(entry.output_names)} in eager",
            hint="let the model return the same structure in every call",
        )
    return {name: spec.arg for name, spec in zip(entry.output_names, specs, strict=True)}


# These ops keep every value, so that a bound on the result is a bound on the input.
_KEEPS_VALUES: Final = frozenset(
    operator.attrgetter(
        *"alias.default clone.default contiguous.default detach.default detach_.default expand.default "
        "flatten.using_ints lift_fresh_copy.default permute.default reshape.default squeeze.default "
        "squeeze.dim squeeze.dims transpose.int unsqueeze.default view.default".split()
    )(_ATEN)
)


def index_range(node: Node) -> tuple[int, int] | None:
    """The rows that an input may name, when all of it indexes an embedding on every call; else None."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype not in (torch.int32, torch.int64):
        return None
    rows = list(_embedding_rows(node))
    return (0, min(rows) - 1) if rows and min(rows) > 0 else None


def _embedding_rows(node: Node) -> Iterator[int]:
    for user in node.users:
        if user.target is _ATEN.embedding.default and user.args[1] is node:
            weight = user.args[0]
            rows = weight.meta["val"].shape[0] if isinstance(weight, Node) else None
            if isinstance(rows, int):
                yield rows
        elif user.target in _KEEPS_VALUES and user.args[0] is node:
            yield from _embedding_rows(user)
