"""Folds the transposes of a module's operands into the dimension numbers of its products.

XLA's CPU compiler folds one into a product alone, and not where the product is of a vector and something is
added to it: `x @ weight.T + bias` copies the transposed weight in each call, which takes six times (2048 x
2048) to fifteen times as long as the product. Compilers for other devices choose layouts of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def fold_transposes(module: Any) -> None:
    """Let each product of a StableHLO module read what was transposed for it as it lies, if it can.

    A transpose that moves a dim of the batch stays: XLA wants these first, and would transpose again.
    """
    for product in list(_products(module.operation)):
        for side, name in enumerate(("lhs", "rhs")):
            while _fold(product, side, name):
                pass


def _products(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region.blocks:
            for each in block.operations:
                yield from _products(each.operation)
                if each.operation.name == "stablehlo.dot_general":
                    yield each.operation


def _fold(product: Any, side: int, name: str) -> bool:
    """Fold one operand's transpose; gives whether it had one that can be folded."""
    from jaxlib.mlir.dialects import stablehlo

    operand = product.operands[side]
    made = getattr(operand.owner, "operation", operand.owner)
    if getattr(made, "name", "") != "stablehlo.transpose":
        return False
    order = list(made.attributes["permutation"])
    numbers = stablehlo.DotDimensionNumbers(product.attributes["dot_dimension_numbers"])
    kinds = ("batching_dimensions", "contracting_dimensions")
    dims = {f"{of}_{kind}": list(getattr(numbers, f"{of}_{kind}")) for of in ("lhs", "rhs") for kind in kinds}
    batch, summed = (dims[f"{name}_{kind}"] for kind in kinds)
    free = [order[dim] for dim in range(len(order)) if dim not in (*batch, *summed)]
    # A result has the free dims of an operand in their order.
    if any(order[dim] != dim for dim in batch) or free != sorted(free):
        return False
    dims[f"{name}_contracting_dimensions"] = [order[dim] for dim in summed]
    with product.context:
        product.attributes["dot_dimension_numbers"] = stablehlo.DotDimensionNumbers.get(**dims)
    product.operands[side] = made.operands[0]
    if not any(True for _ in operand.uses):
        made.erase()
    return True
