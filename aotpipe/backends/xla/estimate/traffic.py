"""How many bytes a StableHLO program has to move from and to the memory, whatever its compiler does.

`least(module)` takes a parsed module: each argument is read once, as far as the program looks at it (of an
embedding the rows that are taken), and each result is written once. What the compiler itself counts is more:
what it keeps on the chip, and what it copies there first, counts again. Torch-free; needs jaxlib's MLIR.
"""

from __future__ import annotations

import math
from typing import Any, Final

from aotpipe.backends.xla.estimate.matmuls import functions_of

_BITS: Final = {"i1": 8, "index": 64}
# Of these the first operand is looked at as far as the result is.
_TAKING: Final = frozenset({"stablehlo.gather", "stablehlo.dynamic_slice", "stablehlo.slice"})
# One element of the result for each of the operand.
_KEEPING: Final = frozenset({"stablehlo.convert", "stablehlo.reshape", "stablehlo.transpose"})


def least(module: Any) -> int:
    """Bytes of the public function `main`."""
    functions = functions_of(module)
    main = functions["main"]
    results = sum(_elements(each) * _itemsize(each) for each in main.type.results)
    return results + sum(
        _read(argument, functions) * _itemsize(argument.type) for argument in main.entry_block.arguments
    )


def _read(value: Any, functions: dict[str, Any]) -> int:
    """How many elements of a value are looked at."""
    whole, found = _elements(value.type), 0
    for use in value.uses:
        operation, position = use.owner.operation, use.operand_number
        if operation.name in _TAKING and position == 0:
            found += _elements(operation.results[0].type)
        elif operation.name in _KEEPING:
            found += _read(operation.results[0], functions)
        elif operation.name == "func.call":
            callee = functions[str(operation.attributes["callee"].value)]
            found += _read(callee.entry_block.arguments[position], functions)
        else:
            return whole
        if found >= whole:
            return whole
    return found


def _elements(kind: Any) -> int:
    return math.prod(kind.shape)


def _itemsize(kind: Any) -> int:
    """Bytes of an element; what is narrower takes a whole one."""
    name = str(kind.element_type)
    if name.startswith("complex"):
        return 16 if "f64" in name else 8
    return max(_BITS.get(name) or int(getattr(kind.element_type, "width", 8)), 8) // 8
