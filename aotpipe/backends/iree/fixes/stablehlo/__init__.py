"""What is rewritten in functions of StableHLO, by jaxlib's bindings: each `apply` is a `Rewrite`."""

from __future__ import annotations

from typing import Any


def put_barrier(operation: Any, place: int) -> None:
    """Have an operand computed by itself."""
    from jaxlib.mlir import ir

    operand = operation.operands[place]
    barrier = ir.Operation.create(
        "stablehlo.optimization_barrier",
        results=[operand.type],
        operands=[operand],
        loc=operation.location,
        ip=ir.InsertionPoint(operation),
    )
    operation.operands[place] = barrier.result
