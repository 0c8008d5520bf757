"""Emits what a module's text says among the ops of another module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def inlined(text: str, operands: Sequence[Any]) -> Any:
    """Emit the body of the last function of a module's text; the value that it returns.

    See `all_inlined`.
    """
    [found] = all_inlined(text, operands)
    return found


def all_inlined(text: str, operands: Sequence[Any]) -> list[Any]:
    """Emit the body of the last function of a module's text; the values that it returns.

    The executables before it join the module around, each once. An op with a region reads nothing from
    around it.
    """
    from iree.compiler import ir

    module = ir.Module.parse(text)
    *executables, function = module.body.operations
    root = ir.InsertionPoint.current.block.owner
    while root.parent is not None:
        root = root.parent.operation
    symbols = ir.SymbolTable(root)
    for executable in executables:
        if executable.attributes["sym_name"].value not in symbols:
            with ir.InsertionPoint.at_block_begin(root.regions[0].blocks[0]):
                executable.operation.clone()
    block = function.regions[0].blocks[0]
    values = list(zip(block.arguments, operands, strict=True))

    def given(value: Any) -> Any:
        return next(other for own, other in values if own == value)

    for op in block.operations:
        if op.operation.name in ("util.return", "func.return"):
            break
        clone = op.operation.clone()
        for position, operand in enumerate(op.operation.operands):
            clone.operands[position] = given(operand)
        values += zip(op.operation.results, clone.results, strict=True)
    return [given(operand) for operand in op.operation.operands]
