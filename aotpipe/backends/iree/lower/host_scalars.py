"""Whole numbers and bools of a graph that the host computes, beside the tensors that hold them.

A loop's counter is a 0-d tensor to torch. Where the device computes it, each trip launches a kernel for it
and waits to read whether to go on. What is made of such numbers and of sizes alone is a few instructions of
the host instead, with the bits that the ops give. `number_nodes(module, sources)` says which nodes those are,
`hosted_carries(loop)` which carries of a `while_loop` are among them in every trip, and `Numbers` writes them
as `i64`, `i32` or `i1`. Only ops that cannot fail are taken: no division.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from iree.compiler.dialects import arith, linalg, tensor
from iree.compiler.ir import IntegerAttr, IntegerType, RankedTensorType, Type, Value
from torch import fx

from aotpipe.backends.iree.lower.region_borders import to_builtin
from aotpipe.passes import hops
from aotpipe.passes.extract import dependencies
from aotpipe.passes.ops import CAST, name_of, overloads

_ATEN: Final = torch.ops.aten
_SIZE: Final = _ATEN.sym_size.int
_LOOP: Final = torch.ops.higher_order.while_loop
_WIDTHS: Final[Mapping[torch.dtype, int]] = {torch.bool: 1, torch.int32: 32, torch.int64: 64}


def number_dtype(val: Any) -> torch.dtype | None:
    """The dtype of a fake value that the host can hold as a number: a 0-d tensor or a size; else None."""
    if isinstance(val, torch.SymInt):
        return torch.int64
    if isinstance(val, torch.Tensor) and not val.dim() and val.dtype in _WIDTHS:
        return val.dtype
    return None


def _number_type(dtype: torch.dtype) -> Type:
    return IntegerType.get_signless(_WIDTHS[dtype])


class Numbers:
    """The numbers of one graph, each written where it is first asked for, at the insertion point.

    Its importer writes the graph into one block, from the top to the end. `sources` are the placeholders
    whose numbers are known; `placed` gives a builtin tensor where it is read.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        sources: Mapping[fx.Node, Value],
        value_of: Callable[[fx.Node], Value],
        placed: Callable[[Value], Value] = lambda value: value,
    ) -> None:
        self._nodes = number_nodes(module, sources)
        self._values = dict(sources)
        self._value_of = value_of
        self._placed = placed

    def __contains__(self, argument: object) -> bool:
        """Whether no device is asked for a node's number, or has been."""
        return argument in self._nodes or argument in self._values

    def bind(self, node: fx.Node, number: Value) -> None:
        """Tell the number of a loop's result."""
        self._values[node] = number

    def __call__(self, argument: Any, dtype: torch.dtype | None = None) -> Value:
        """A node's number, read from its tensor if need be, or a literal, in a dtype or in its own."""
        if not isinstance(argument, fx.Node):
            return literal(argument, dtype or torch.result_type(argument, argument))
        # No recursion: a chain of sums may be long.
        waiting = [argument]
        while waiting:
            node = waiting[-1]
            operands = _OPS[node.target].arguments(node) if self._is_computed(node) else []
            missing = [each for each in operands if isinstance(each, fx.Node) and each not in self._values]
            if missing:
                waiting += missing
            elif node not in self._values:
                self._values[node] = self._write(node)
            else:
                waiting.pop()
        own = number_dtype(argument.meta["val"])
        assert own is not None
        return cast(self._values[argument], own, dtype or own)

    def _is_computed(self, node: fx.Node) -> bool:
        """Whether a number is written from its op's arguments, not taken from the node's own value."""
        if node in self._values or node.target not in _OPS:
            return False
        return node in self._nodes or _is_half_hosted(node, self)

    def _write(self, node: fx.Node) -> Value:
        if self._is_computed(node):
            op = _OPS[node.target]
            arguments = enumerate(op.arguments(node))
            return op.write(node, [self(each, op.dtype(node, place)) for place, each in arguments])
        value = self._value_of(node)
        plain = to_builtin(value)
        return read(self._placed(plain)) if isinstance(plain.type, RankedTensorType) else plain


def sources_of(
    module: fx.GraphModule, wanted: Iterable[Any], candidates: Collection[fx.Node]
) -> set[fx.Node]:
    """Those of some placeholders that the host computes wanted outputs of, or what it computes of them."""
    numbers = number_nodes(module, candidates)
    hosted = dependencies(wanted, lambda node: node in numbers or _is_half_hosted(node, numbers))
    return hosted & set(candidates)


def number_nodes(module: fx.GraphModule, sources: Collection[fx.Node]) -> set[fx.Node]:
    """The nodes of a graph that are computed of sizes, literals and the given placeholders alone."""
    found = set(sources)
    for node in module.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            # A placeholder that is a size is the host's already.
            if isinstance(node.meta.get("val"), torch.SymInt):
                found.add(node)
        elif number_dtype(node.meta.get("val")) is not None and _is_hosted(node, found):
            found.add(node)
    return found


def _is_hosted(node: fx.Node, found: Collection[fx.Node]) -> bool:
    val = node.meta["val"]
    if isinstance(val, torch.SymInt):
        # Sizes are the host's, and what is computed of sizes; what is read from a tensor may not be.
        return node.target is _SIZE or all(argument in found for argument in node.all_input_nodes)
    if node.target is operator.getitem:
        loop, index = node.args
        return isinstance(loop, fx.Node) and loop.target is _LOOP and index in hosted_carries(loop)
    return _missing(node, found) == set()


def _is_half_hosted(node: fx.Node, found: Container[fx.Node]) -> bool:
    """Whether the host computes a number once it has read one operand: no more than to read the number."""
    missing = _missing(node, found)
    return missing is not None and len(missing) <= 1 and all(map(_is_scalar, (node, *missing)))


def _is_scalar(node: fx.Node) -> bool:
    val = node.meta.get("val")
    return isinstance(val, torch.Tensor) and number_dtype(val) is not None


def _missing(node: fx.Node, found: Container[fx.Node]) -> set[fx.Node] | None:
    """The operands of an op that the host has not; None for an op that it cannot compute."""
    op = _OPS.get(node.target)
    if op is None or (node.target in _WHOLE and node.meta["val"].dtype is torch.bool):
        return None
    literals = [node.kwargs.get("alpha", 1)]
    missing = set()
    for argument in op.arguments(node):
        if not isinstance(argument, fx.Node):
            literals.append(argument)
        elif argument not in found:
            missing.add(argument)
    # A literal of more than 32 bits beside an int32 wraps, or is refused.
    is_exact = all(isinstance(each, int) and -(2**31) <= each < 2**31 for each in literals)
    return missing if is_exact else None


def hosted_carries(loop: fx.Node) -> frozenset[int]:
    """The carries of a `while_loop` that each trip computes of such carries, sizes and what no trip changes.

    What they start as, and what no trip changes, is read once before the loop.
    """
    known = loop.meta.get(_HOSTED)
    if known is None:
        known = loop.meta[_HOSTED] = _hosted(loop)
    return known


_HOSTED: Final = "aotpipe_hosted"


def _hosted(loop: fx.Node) -> frozenset[int]:
    _, body = hops.call_of(loop).subgraphs
    inputs, outputs = hops.placeholders(body), hops.output_values(body)
    carries = range(len(loop.args[2]))  # type: ignore[arg-type]
    kept = [node for node in inputs[len(carries) :] if number_dtype(node.meta["val"]) is not None]
    found = {position for position in carries if _may_cross(inputs[position], outputs[position])}
    while True:
        numbers = number_nodes(body, [*kept, *(inputs[position] for position in found)])
        left = {position for position in found if outputs[position] in numbers}
        if left == found:
            return frozenset(found)
        found = left


def _may_cross(before: fx.Node, after: Any) -> bool:
    """Whether a carry is a 0-d tensor of one dtype on both ends of a trip."""
    are_scalars = isinstance(after, fx.Node) and _is_scalar(before) and _is_scalar(after)
    return are_scalars and before.meta["val"].dtype is after.meta["val"].dtype


def literal(value: int, dtype: torch.dtype) -> Value:
    """Write a Python number or bool."""
    kind = _number_type(dtype)
    if dtype is torch.bool:
        value = -int(bool(value))
    return arith.constant(kind, IntegerAttr.get(kind, int(value)))


def cast(value: Value, source: torch.dtype, wanted: torch.dtype) -> Value:
    """Write a number in another dtype, as torch casts it."""
    if source is wanted:
        return value
    kind = _number_type(wanted)
    if wanted is torch.bool:
        zero = literal(0, source)
        return arith.cmpi(arith.CmpIPredicate.ne, value, zero)
    if source is torch.bool:
        return arith.extui(kind, value)
    widened = _WIDTHS[wanted] > _WIDTHS[source]
    return arith.extsi(kind, value) if widened else arith.trunci(kind, value)


def filled(number: Value) -> Value:
    """A number as a 0-d builtin tensor: a fill, which the kernels that read it compute by themselves."""
    return linalg.fill(number, outs=[tensor.empty([], number.type)])


def read(value: Value) -> Value:
    """The number in a 0-d builtin tensor: the host waits for it."""
    assert isinstance(value.type, RankedTensorType)
    return tensor.extract(value, [])


@dataclass(frozen=True, slots=True)
class _Op:
    """How an op is computed: its operands, each read in a dtype, make its value.

    Attributes:
        operands: The positions of the node's arguments that are read.
        dtype: In which dtype an operand is read, by its position.
    """

    write: Callable[[fx.Node, list[Value]], Value]
    operands: range = range(2)
    dtype: Callable[[fx.Node, int], torch.dtype] = lambda node, _: node.meta["val"].dtype

    def arguments(self, node: fx.Node) -> list[Any]:
        """What is read of a node's arguments."""
        return [node.args[position] for position in self.operands]


def _of(op: Callable[..., Value], **options: Any) -> _Op:
    return _Op(lambda _, sides: op(*sides), **options)


def _scaled(op: Callable[[Value, Value], Value]) -> _Op:
    def write(node: fx.Node, sides: list[Value]) -> Value:
        left, right = sides
        factor: Any = node.kwargs.get("alpha", 1)
        if factor != 1:
            right = arith.muli(right, literal(factor, node.meta["val"].dtype))
        return op(left, right)

    return _Op(write)


def _compared(node: fx.Node, sides: list[Value]) -> Value:
    name = name_of(node)
    # As a signed number one bit that is set is -1.
    sign = "" if name in ("eq", "ne") else "u" if _common(node) is torch.bool else "s"
    return arith.cmpi(getattr(arith.CmpIPredicate, sign + name), *sides)


def _inverted(node: fx.Node, sides: list[Value]) -> Value:
    kind = torch.bool if node.target is _ATEN.logical_not.default else node.meta["val"].dtype
    return arith.xori(sides[0], literal(-1, kind))


def _same(position: int = 0) -> _Op:
    return _of(lambda value: value, operands=range(position, position + 1))


def _common(comparison: fx.Node) -> torch.dtype:
    """The dtype in which a comparison compares: a Python number adapts to a tensor."""
    return torch.result_type(*map(_like, comparison.args))


def _like(argument: Any) -> Any:
    val = argument.meta["val"] if isinstance(argument, fx.Node) else argument
    if isinstance(val, torch.SymInt):
        return 1
    return torch.empty((), dtype=val.dtype) if isinstance(val, torch.Tensor) else val


_COMPARISONS: Final = overloads(
    "lt.Tensor le.Tensor gt.Tensor ge.Tensor eq.Tensor ne.Tensor lt.Scalar le.Scalar gt.Scalar ge.Scalar "
    "eq.Scalar ne.Scalar"
)
_WHOLE: Final[Mapping[Any, _Op]] = {
    **dict.fromkeys(overloads("add.Tensor add.Scalar"), _scaled(arith.addi)),
    **dict.fromkeys(overloads("sub.Tensor sub.Scalar"), _scaled(arith.subi)),
    **dict.fromkeys(overloads("mul.Tensor mul.Scalar"), _of(arith.muli)),
    _ATEN.minimum.default: _of(arith.minsi),
    _ATEN.maximum.default: _of(arith.maxsi),
}
"""What is not so for bools, whose sum is no sum of bits."""
_OPS: Final[Mapping[Any, _Op]] = {
    **_WHOLE,
    **dict.fromkeys(_COMPARISONS, _Op(_compared, dtype=lambda node, _: _common(node))),
    **dict.fromkeys(overloads("bitwise_and.Tensor bitwise_and.Scalar"), _of(arith.andi)),
    **dict.fromkeys(overloads("bitwise_or.Tensor bitwise_or.Scalar"), _of(arith.ori)),
    **dict.fromkeys(overloads("bitwise_xor.Tensor bitwise_xor.Scalar"), _of(arith.xori)),
    _ATEN.logical_and.default: _of(arith.andi, dtype=lambda *_: torch.bool),
    _ATEN.logical_or.default: _of(arith.ori, dtype=lambda *_: torch.bool),
    _ATEN.logical_xor.default: _of(arith.xori, dtype=lambda *_: torch.bool),
    _ATEN.logical_not.default: _Op(_inverted, range(1), lambda *_: torch.bool),
    _ATEN.bitwise_not.default: _Op(_inverted, range(1)),
    _ATEN.where.self: _Op(
        lambda _, sides: arith.select(*sides),
        range(3),
        lambda node, position: node.meta["val"].dtype if position else torch.bool,
    ),
    _ATEN.full.default: _same(1),
    **dict.fromkeys((*overloads("scalar_tensor clone alias"), CAST), _same()),
}
