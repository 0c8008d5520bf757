"""What is counted of a program: work, traffic, memory, and what its devices send each other. Torch-free.

`figures(executable, module)` takes an executable, loaded or not, and the parsed module it was made of, and
gives JSON values. Of a count that a platform's compiler does not give there is what the module says, or 0.
`count_products(module)` gives the flops of a module's products of matrices by dtype and precision: a function
counts as often as it is called, and a loop that counts up to a number as often as it runs; another loop is
one trip, and of branches the one with the most work counts. `least_traffic(module)` gives the bytes that a
program has to move, whatever its compiler does. `collectives(hlo)` counts instructions. Needs jaxlib.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

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
# Of these the first operand is looked at as far as the result is.
_TAKING: Final = frozenset({"stablehlo.gather", "stablehlo.dynamic_slice", "stablehlo.slice"})
# One element of the result for each of the operand.
_KEEPING: Final = frozenset({"stablehlo.convert", "stablehlo.reshape", "stablehlo.transpose"})


def figures(executable: Any, module: Any) -> dict[str, Any]:
    """The counts of a program, as `chips.estimate` reads them."""
    counted = count_products(module)
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


def _memory(executable: Any) -> list[int]:
    """Bytes of arguments, results, what these share, temporaries and code; 0 where the compiler says none."""
    try:
        found = executable.get_compiled_memory_stats()
    except RuntimeError:
        found = None
    kinds = ("argument", "output", "alias", "temp", "generated_code")
    return [getattr(found, f"{kind}_size_in_bytes") if found else 0 for kind in kinds]


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
    functions = functions_of(module)
    main = functions["main"]
    results = sum(_elements(each) * _itemsize(each) for each in main.type.results)
    return results + sum(
        _read(argument, functions) * _itemsize(argument.type) for argument in main.entry_block.arguments
    )


def _read(value: Any, functions: dict[str, Any]) -> int:
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
    return max(_bits(kind), 8) // 8


def collectives(hlo: str) -> dict[str, int]:
    """The collectives in a program's HLO text, by kind, in the order of `COLLECTIVES`.

    One in the body of a loop counts once. What runs beside other work is two instructions, of which the start
    counts.
    """
    found = Counter(_INSTRUCTION.findall(hlo))
    return {kind: found[kind] for kind in COLLECTIVES if found[kind]}


Kind = tuple[str, str]
"""The dtype of the operands, and the precision."""

_KINDS: Final = {"bf": "bfloat", "f": "float", "i": "int", "ui": "uint"}
_DTYPES: Final = {
    **{f"{short}{bits}": f"{name}{bits}" for short, name in _KINDS.items() for bits in (8, 16, 32, 64)},
    "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
    "complex<f32>": "complex64",
    "complex<f64>": "complex128",
}
_PRECISIONS: Final = ("default", "high", "highest")
_BRANCHING: Final = ("stablehlo.if", "stablehlo.case")


@dataclass(frozen=True, slots=True)
class Counted:
    """Flops by kind.

    Attributes:
        further: Those of them that are of a loop's second and later trips.
        loops: How many loops count as one trip.
    """

    flops: Counter[Kind] = field(default_factory=Counter)
    further: int = 0
    loops: int = 0

    @property
    def total(self) -> int:
        """The flops of all dtypes and precisions together."""
        return self.flops.total()


def count_products(module: Any) -> Counted:
    """The products of a module's public function `main`."""
    functions = functions_of(module)
    known: dict[str, Counted] = {}

    def of_function(name: str) -> Counted:
        if name not in known:
            known[name] = _added(map(of_operation, functions[name].entry_block.operations))
        return known[name]

    def of_operation(view: Any) -> Counted:
        operation = view.operation
        if operation.name == "func.call":
            return of_function(str(operation.attributes["callee"].value))
        if work := _WORK.get(operation.name):
            return Counted(Counter({_kind(operation): work(operation)}))
        regions = [
            _added(of_operation(each) for block in region.blocks for each in block.operations)
            for region in operation.regions
        ]
        if operation.name in _BRANCHING:
            return max(regions, key=lambda each: each.total, default=Counted())
        inner = _added(regions)
        return _repeated(inner, _trips(operation)) if operation.name == "stablehlo.while" else inner

    return of_function("main")


def functions_of(module: Any) -> dict[str, Any]:
    """The functions of a parsed module by name; a mesh of the partitioner's may stand beside them."""
    found = (each for each in module.body.operations if each.operation.name == "func.func")
    return {str(each.name.value): each for each in found}


def _added(parts: Iterable[Counted]) -> Counted:
    listed = list(parts)
    flops = sum((part.flops for part in listed), start=Counter[Kind]())
    return Counted(flops, sum(part.further for part in listed), sum(part.loops for part in listed))


def _repeated(trip: Counted, trips: int | None) -> Counted:
    if trips is None:
        return Counted(trip.flops, trip.further, trip.loops + 1)
    flops = Counter({kind: work * trips for kind, work in trip.flops.items()})
    once = trip.total - trip.further
    return Counted(flops, max(flops.total() - once, 0), trip.loops)


def _trips(loop: Any) -> int | None:
    """How often a loop runs that counts up from a constant to one, as those of `scan` do; None for others."""
    test, body = (region.blocks[0] for region in loop.regions)
    compared = test.operations[len(test.operations) - 1].operands[0].owner
    if getattr(compared, "name", "") != "stablehlo.compare":
        return None
    counter, limit = (_number(operand) for operand in compared.operands)
    place = next((at for at, each in enumerate(test.arguments) if each == compared.operands[0]), None)
    direction = str(compared.attributes["comparison_direction"])
    if place is None or counter is not None or limit is None or " LT>" not in direction.replace("<", "< "):
        return None
    step = body.operations[len(body.operations) - 1].operands[place].owner
    if getattr(step, "name", "") != "stablehlo.add" or body.arguments[place] not in list(step.operands):
        return None
    start = _number(loop.operands[place])
    steps = [number for operand in step.operands if (number := _number(operand)) is not None]
    if start is None or not steps or steps[0] <= 0:
        return None
    return max(-(-(limit - start) // steps[0]), 0)


def _number(value: Any) -> int | None:
    owner = value.owner
    if getattr(owner, "name", "") != "stablehlo.constant" or value.type.shape:
        return None
    return int(np.asarray(owner.attributes["value"]).item())


def _kind(operation: Any) -> Kind:
    # The narrower operand is widened to the other.
    dtype = _dtype(max((operand.type for operand in list(operation.operands)[:2]), key=_bits))
    named = [str(each).lower() for each in operation.attributes.get("precision_config", ())]
    found = [rank for each in named for rank, word in enumerate(_PRECISIONS) if f" {word}>" in each]
    return dtype, _PRECISIONS[max(found, default=0)]


def _dtype(kind: Any) -> str:
    name = str(kind.element_type)
    return _DTYPES.get(name, name)


def _bits(kind: Any) -> int:
    from jaxlib.mlir.ir import ComplexType

    element = kind.element_type
    return int(2 * element.element_type.width if isinstance(element, ComplexType) else element.width)


def _product_flops(operation: Any) -> int:
    from jaxlib.mlir.dialects import stablehlo

    left = operation.operands[0].type.shape
    if operation.name == "stablehlo.dot":
        axes = [len(left) - 1]  # the plain form, which the partitioner writes
    else:
        numbers = stablehlo.DotDimensionNumbers(operation.attributes["dot_dimension_numbers"])
        axes = list(numbers.lhs_contracting_dimensions)
    summed = math.prod(left[axis] for axis in axes)
    return 2 * math.prod(operation.results[0].type.shape) * summed


def _convolution_flops(operation: Any) -> int:
    """Multiplications by padding and by the holes of a spread input are left out, as XLA leaves them out."""
    from jaxlib.mlir.dialects import stablehlo

    attributes = operation.attributes
    numbers = stablehlo.ConvDimensionNumbers(attributes["dimension_numbers"])
    image, kernel = (operand.type.shape for operand in operation.operands)
    result = operation.results[0].type.shape
    rank = len(numbers.kernel_spatial_dimensions)

    def each(name: str) -> list[int]:
        return list(attributes.get(name, [1] * rank))

    pads = np.asarray(attributes.get("padding", [0] * 2 * rank)).reshape(rank, 2)
    taps = 1
    for at in range(rank):
        taps *= _taps(
            image[numbers.input_spatial_dimensions[at]],
            kernel[numbers.kernel_spatial_dimensions[at]],
            result[numbers.output_spatial_dimensions[at]],
            stride=each("window_strides")[at],
            before=int(pads[at][0]),
            spread=each("lhs_dilation")[at],
            dilation=each("rhs_dilation")[at],
        )
    batch = result[numbers.output_batch_dimension]
    features = result[numbers.output_feature_dimension]
    return int(2 * batch * features * kernel[numbers.kernel_input_feature_dimension] * taps)


def _taps(
    image: int, kernel: int, result: int, *, stride: int, before: int, spread: int, dilation: int
) -> int:
    """How many pairs of a result's place and a kernel's along one dim meet an element of the image."""
    places = np.arange(result)[:, None] * stride + np.arange(kernel)[None] * dilation - before
    inside = (places >= 0) & (places <= (image - 1) * spread) & (places % spread == 0)
    return int(inside.sum())


_WORK: Final = {
    "stablehlo.dot": _product_flops,
    "stablehlo.dot_general": _product_flops,
    "stablehlo.convolution": _convolution_flops,
}
