"""What is counted of a program: work, traffic, memory, and what its devices send each other. Torch-free.

`figures(executable, module)` takes an executable, loaded or not, and the parsed module it was made of, and
gives JSON values. Of a count that a platform's compiler does not give there is what the module says, or 0.
`least_traffic(module)` gives the bytes that a program has to move, whatever its compiler does.
`collectives(hlo)` counts instructions. Needs jaxlib.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any, Final

from aotpipe.backends.xla.estimate import matmuls

COLLECTIVES: Final = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
# An instruction is `%name = TYPE KIND(OPERANDS), ...`; its name and metadata may hold a kind's word, too.
_INSTRUCTION: Final = re.compile(
    rf"^\s*(?:ROOT )?%?[\w.-]+ = .*?\s({'|'.join(COLLECTIVES)})(?:-start)?\(", re.MULTILINE
)
_BITS: Final = {"i1": 8, "index": 64}
# Of these the first operand is looked at as far as the result is.
_TAKING: Final = frozenset({"stablehlo.gather", "stablehlo.dynamic_slice", "stablehlo.slice"})
# One element of the result for each of the operand.
_KEEPING: Final = frozenset({"stablehlo.convert", "stablehlo.reshape", "stablehlo.transpose"})


def figures(executable: Any, module: Any) -> dict[str, Any]:
    """The counts of a program, as `chips.estimate` reads them."""
    counted = matmuls.count(module)
    flops, accessed = _costs(executable)
    arguments, results, shared, temporaries, code = _memory(executable)
    return {
        # It counts each loop as one trip.
        "flops": max(flops + counted.further, counted.total),
        "bytes_accessed": accessed,
        "traffic_bytes": least_traffic(module),
        "loops": counted.loops,
        "matmuls": [
            [dtype, precision, flops] for (dtype, precision), flops in counted.flops.items() if flops
        ],
        "arguments_bytes": arguments,
        "results_bytes": results,
        "temporaries_bytes": temporaries,
        "code_bytes": code,
        "peak_bytes": arguments + results - shared + temporaries + code,
    }


def _memory(executable: Any) -> tuple[int, int, int, int, int]:
    """Bytes of arguments, results, what these share, temporaries and code."""
    try:
        found = executable.get_compiled_memory_stats()
    except RuntimeError:
        return 0, 0, 0, 0, 0
    return (
        found.argument_size_in_bytes,
        found.output_size_in_bytes,
        found.alias_size_in_bytes,
        found.temp_size_in_bytes,
        found.generated_code_size_in_bytes,
    )


def _costs(executable: Any) -> tuple[int, int]:
    """Flops and bytes; 0 where the compiler knows none, which it says by a negative number."""
    try:
        costs = executable.cost_analysis()
    except RuntimeError:
        return 0, 0  # "GetCostAnalysis is not supported", says CUDA's plugin
    # Of several partitions, each has the same.
    found = (costs[0] if isinstance(costs, list) else costs) or {}
    return max(int(found.get("flops") or 0), 0), max(int(found.get("bytes accessed") or 0), 0)


def least_traffic(module: Any) -> int:
    """The bytes that a module's function `main` has to move from and to the memory.

    Each argument is read once, as far as the program looks at it (of an embedding the rows that are taken),
    and each result is written once. What the compiler itself counts is more: what it keeps on the chip, and
    what it copies there first, counts again.
    """
    functions = matmuls.functions_of(module)
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


def collectives(hlo: str) -> dict[str, int]:
    """The collectives in a program's HLO text, by kind, in the order of `COLLECTIVES`.

    One in the body of a loop counts once. What runs beside other work is two instructions, of which the start
    counts.
    """
    found = Counter(_INSTRUCTION.findall(hlo))
    return {kind: found[kind] for kind in COLLECTIVES if found[kind]}
