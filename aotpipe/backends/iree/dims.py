"""Tells the compiler what the signature says of an argument's sizes: their ranges, multiples and equalities.

The runner checks all of it before each call. Without a range the compiler takes any size up to 2**53 for
possible, and reserves memory for so many (vmvx). Only the arguments are described, not what is computed from
them: its shape inference does that, and refuses some expressions that torch.export makes (convolutions).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any, Final

from iree.compiler import ir

from aotpipe.signature import Dim, Signature, Symbol, TensorSpec, dim_symbols, evaluate_dim

_UNBOUNDED: Final = 2**63 - 1
_AFFINE: Final = frozenset(
    {ast.Expression, ast.BinOp, ast.Name, ast.Constant, ast.Load, ast.Add, ast.Sub, ast.Mult}
)


def bind(signature: Signature, arguments: Iterable[ir.Value]) -> None:
    """Emit what is known of a function's arguments: of the state, then of the inputs."""
    symbols = {symbol.name: symbol for symbol in signature.symbols}
    values: dict[str, ir.Value] = {}
    for spec, argument in zip((*signature.state, *signature.tensor_inputs), arguments, strict=True):
        names = _names(spec, symbols)
        if names:
            for name in names:
                if name not in values:
                    values[name] = _declare(symbols[name])
            ir.Operation.create(
                "torch.bind_symbolic_shape",
                operands=[argument, *(values[name] for name in names)],
                attributes={"shape_expressions": ir.AffineMapAttr.get(_map(spec, names))},
            )


def _names(spec: TensorSpec, symbols: Mapping[str, Symbol]) -> list[str]:
    """The symbols of a tensor's dims, none where a dim is no affine expression of known ones."""
    if not all(map(_is_affine, spec.dims)):
        return []
    names = sorted({name for dim in spec.dims for name in dim_symbols(dim)})
    return names if symbols.keys() >= set(names) else []


def _is_affine(dim: Dim) -> bool:
    """Whether a dim is a sum of multiples of symbols."""
    return isinstance(dim, int) or all(
        _scales(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
        else type(node) in _AFFINE
        for node in ast.walk(ast.parse(dim, mode="eval"))
    )


def _scales(product: ast.BinOp) -> bool:
    return isinstance(product.left, ast.Constant) or isinstance(product.right, ast.Constant)


def _declare(symbol: Symbol) -> ir.Value:
    return ir.Operation.create(
        "torch.symbolic_int",
        results=[ir.Type.parse("!torch.int")],
        attributes={
            "symbol_name": ir.StringAttr.get(symbol.name),
            "min_val": _integer(symbol.min),
            "max_val": _integer(_UNBOUNDED if symbol.max is None else symbol.max),
        },
    ).result


def _integer(value: int) -> ir.IntegerAttr:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _map(spec: TensorSpec, names: list[str]) -> ir.AffineMap:
    # The expressions compute with affine symbols as they do with sizes.
    symbols: dict[str, Any] = {name: ir.AffineSymbolExpr.get(position) for position, name in enumerate(names)}
    return ir.AffineMap.get(
        0,
        len(names),
        [
            ir.AffineConstantExpr.get(dim) if isinstance(dim, int) else evaluate_dim(dim, symbols)
            for dim in spec.dims
        ],
    )
