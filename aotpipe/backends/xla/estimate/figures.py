"""What XLA says of a program that it has compiled: work, traffic and memory, as JSON values.

`figures(executable, module)` takes an executable, loaded or not, and the parsed module it was made of. Of a
count that a platform's compiler does not give there is what the module says, or 0. Torch-free; needs jaxlib.
"""

from __future__ import annotations

from typing import Any

from aotpipe.backends.xla.estimate import matmuls, traffic


def figures(executable: Any, module: Any) -> dict[str, Any]:
    """The counts of a program, as `roofline.estimate` reads them."""
    counted = matmuls.count(module)
    costs = _costs(executable)
    arguments, results, shared, temporaries, code = _memory(executable)
    return {
        # It counts each loop as one trip.
        "flops": max(_whole(costs.get("flops")) + counted.further, counted.total),
        "bytes_accessed": _whole(costs.get("bytes accessed")),
        "traffic_bytes": traffic.least(module),
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


def _costs(executable: Any) -> dict[str, float]:
    try:
        costs = executable.cost_analysis()
    except RuntimeError:
        return {}  # "GetCostAnalysis is not supported", says CUDA's plugin
    # Of several partitions, each has the same.
    return dict(costs[0] if isinstance(costs, list) else costs or {})


def _whole(value: float | None) -> int:
    """A count as it is, and 0 where the compiler knows none, which it says by a negative number."""
    return max(int(value or 0), 0)
