"""What is rewritten in functions of StableHLO, by jaxlib's bindings: each `apply` is a `Rewrite`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def replace_operand(operation: Any, place: int, make: Callable[[Any], Any]) -> None:
    """Have an op read what `make` emits before it for one of its operands."""
    from jaxlib.mlir import ir

    with operation.context, operation.location, ir.InsertionPoint(operation):
        operation.operands[place] = make(operation.operands[place])


def put_barrier(operation: Any, place: int) -> None:
    """Have an operand computed by itself."""
    from jaxlib.mlir.dialects import stablehlo

    replace_operand(operation, place, lambda value: stablehlo.optimization_barrier([value]))
