"""Value ranges of the whole numbers in a graph: which interval every element of a node's value lies in.

`Ranges(entry, tensors)` answers for the top graph and for all bodies of control flow. It knows the inputs'
declared ranges, the weights' values, the sizes' ranges, and what each op does to them (`rules`); what a
loop carries gets an interval that its body is seen to keep. Runtime asserts prove nothing here, because the
memory is read before an assert is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import sympy
import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from aotpipe.core.signature import TensorSpec
from aotpipe.core.stages import LegalEntry
from aotpipe.model import torch_arrays
from aotpipe.passes import hops, ops
from aotpipe.passes.ranges import conditions, rules
from aotpipe.passes.ranges.intervals import ANY, FALSE, TRUE, Interval, Space, as_bound, of_dtype
from aotpipe.passes.scalars import value_of

__all__ = ["Ranges"]

_MOST_STEPS: Final = 1000
_DEPTH: Final = 30
"""Nodes of a chain that is gone through from its end."""
_WHERE_DEPTH: Final = 6
_POINTWISE: Final = frozenset(
    "add sub rsub mul neg abs div remainder fmod clamp clamp_min clamp_max floor ceil trunc maximum minimum "
    "where clone full full_like scalar_tensor masked_fill _to_copy".split()
)


@dataclass(slots=True)
class _Assumed:
    """Intervals of some nodes that are taken for granted, and what follows from them."""

    facts: Mapping[Node, Interval] = field(default_factory=dict)
    found: dict[Node, Interval] = field(default_factory=dict)


def _unknown(node: Node, assumed: _Assumed) -> list[Node]:
    """What a node is computed from and no interval is found of yet, operands first, and the node itself."""
    order: dict[Node, None] = {}
    stack = [(node, False)]
    while stack:
        each, has_operands = stack.pop()
        if has_operands:
            order[each] = None
        elif each not in order and each not in assumed.found:
            stack.append((each, True))
            stack += [(operand, False) for operand in each.all_input_nodes]
    return list(order)


class Ranges:
    """The intervals of one entry's values.

    The entry is flat and in control-flow normal form; asked again after its graph has changed, this answers
    for the nodes that it has seen.
    """

    def __init__(self, entry: LegalEntry, tensors: Mapping[str, torch.Tensor]) -> None:
        self.space = Space(self._range_of_symbol)
        constraints: Mapping[Any, Any] = entry.range_constraints
        self._sizes = {
            symbol: (_number(bounds.lower), _number(bounds.upper)) for symbol, bounds in constraints.items()
        }
        self._inputs = _input_intervals(entry, tensors)
        self._calls: dict[torch.fx.Graph, hops.Call] = {}
        self._symbols: dict[sympy.Symbol, list[Node]] = {}
        for module in hops.walk(entry.graph):
            self._calls.update((body.graph, call) for call in hops.calls(module) for body in call.subgraphs)
            self._define_symbols(module)
        self._certain = _Assumed()
        self._steps: Iterator[int] = iter(())
        self._asked: set[sympy.Symbol] = set()
        self._depth = 0

    def of(self, argument: Any) -> Interval:
        """The interval of a node's value, or of a number."""
        return self._of(argument, self._certain)

    def always(self, condition: Node) -> bool:
        """Whether a bool is certainly true."""
        return self.of(condition) == TRUE

    def _of(self, argument: Any, assumed: _Assumed) -> Interval:
        if isinstance(argument, Node):
            if argument not in assumed.found:
                # A node takes several frames of Python: a long chain is gone through from its start.
                chain = _unknown(argument, assumed) if self._depth >= _DEPTH else [argument]
                self._depth += 1
                try:
                    for node in chain:
                        # One before it may have asked for it already.
                        if node not in assumed.found:
                            # Only a loop makes a value depend on itself; its carries are asked for with
                            # assumptions.
                            assumed.found[node] = _of_value(node)
                            assumed.found[node] = self._find(node, assumed)
                finally:
                    self._depth -= 1
            return assumed.found[argument]
        return _of_number(argument)

    def _find(self, node: Node, assumed: _Assumed) -> Interval:
        if node in assumed.facts:
            return assumed.facts[node]
        if node.op == "placeholder":
            return self._of_placeholder(node, assumed)
        if node.op == "get_attr":
            return _of_value(node)
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and not free_unbacked_symbols(value):
            return Interval(as_bound(value), as_bound(value))
        if node.target in hops.LAYOUTS:
            return ANY
        if (result := self._of_result(node, assumed)) is not None:
            return result
        if ops.name_of(node) == "where":
            return self._of_choice(node, assumed)
        found = rules.interval(node, self.space, lambda argument: self._of(argument, assumed))
        if found.is_open and isinstance(value, torch.SymInt):
            return Interval(as_bound(value), as_bound(value))
        return found

    # where(condition, x, y): the condition narrows each side.

    def _of_choice(self, node: Node, assumed: _Assumed) -> Interval:
        outer = self._steps
        # The paths through nested choices grow exponentially: after these steps, conditions are ignored.
        self._steps = iter(range(_MOST_STEPS))
        try:
            return self._of_where(node, lambda argument: self._of(argument, assumed), 0)
        finally:
            self._steps = outer

    def _of_where(self, node: Node, of: Callable[[Any], Interval], depth: int) -> Interval:
        condition, *branches = node.args
        found = []
        certain = of(condition)
        for branch, truth in zip(branches, (True, False), strict=True):
            if certain == (FALSE if truth else TRUE):
                continue
            known = conditions.of_condition(condition, truth, of, self.space)
            found.append(self._under(branch, known, of, depth))
        return self.space.union(*found)

    def _under(
        self, argument: Any, known: conditions.Facts, of: Callable[[Any], Interval], depth: int
    ) -> Interval:
        """The interval of a branch, whose elements stand where those of the condition do."""

        def under(argument: Any) -> Interval:
            return self._under(argument, known, of, depth + 1)

        if not isinstance(argument, Node):
            return of(argument)
        if next(self._steps, None) is None:
            return _of_value(argument)
        if argument in known:
            return self.space.intersection(of(argument), known[argument])
        name = ops.name_of(argument)
        if depth >= _WHERE_DEPTH or name not in _POINTWISE or not known:
            return of(argument)
        if name == "where":
            return self._of_where(argument, under, depth + 1)
        return rules.interval(argument, self.space, under)

    def _of_placeholder(self, node: Node, assumed: _Assumed) -> Interval:
        if node in self._inputs:
            return self._inputs[node]
        call = self._calls.get(node.graph)
        if call is None or call.node.target is torch.ops.higher_order.associative_scan:
            return _of_value(node)
        index = node.graph.find_nodes(op="placeholder").index(node)
        if index < _carried(call):
            inside = node.graph is call.subgraphs[-1].graph
            return self._of_carry(call, index, assumed, inside=inside)
        return self._of(call.all_operands[index], assumed)

    def _of_result(self, node: Node, assumed: _Assumed) -> Interval | None:
        """The interval of a result of a control-flow call; None for any other node."""
        source, index = (*node.args, None, None)[:2]
        if not isinstance(source, Node) or source.target not in hops.LAYOUTS or not isinstance(index, int):
            return None
        call = hops.call_of(source)
        if call.node.target is torch.ops.higher_order.associative_scan:
            return _of_value(node)
        if index < _carried(call):
            return self._of_carry(call, index, assumed, inside=False)
        bodies = call.subgraphs[-1:] if call.is_while else call.subgraphs
        found = (self._of(hops.output_values(body)[index], assumed) for body in bodies)
        return self.space.union(*map(self._outside, found))

    def _of_carry(self, call: hops.Call, index: int, assumed: _Assumed, *, inside: bool) -> Interval:
        """What a loop carries: where a trip starts (`inside`), or at any border of a trip."""
        start = self._of(call.all_operands[index], assumed)
        body = call.subgraphs[-1]
        inputs = hops.placeholders(body)[: _carried(call)]
        tested = self._tested(call, inputs, assumed)
        for head in (start, replace(start, high=None), replace(start, low=None)):
            if head.is_open:
                continue
            known = {node: self._within_trip(node, ANY, tested) for node in inputs}
            known[inputs[index]] = self._within_trip(inputs[index], head, tested)
            trip = _Assumed({**assumed.facts, **known})
            after = self._outside(self._of(hops.output_values(body)[index], trip))
            if self.space.within(after, head.low, head.high):
                whole = self.space.union(start, after)
                return self._within_trip(inputs[index], whole, tested) if inside else whole
        return self._within_trip(inputs[index], ANY, tested) if inside else _of_value(inputs[index])

    def _outside(self, found: Interval) -> Interval:
        """An interval without the sizes that a body may compute anew in each trip."""
        ends = [end for end in (found.low, found.high) if isinstance(end, sympy.Expr)]
        inner = any(symbol in self._symbols for end in ends for symbol in end.free_symbols)
        return self.space.numeric(found) if inner else found

    def _within_trip(self, node: Node, head: Interval, tested: conditions.Facts) -> Interval:
        found = _of_value(node) if head.is_open else head
        return self.space.intersection(found, tested[node]) if node in tested else found

    def _tested(self, call: hops.Call, inputs: list[Node], assumed: _Assumed) -> conditions.Facts:
        """What a loop's test, being true, says of the single numbers that a trip starts from."""
        if not call.is_while:
            return {}
        test = call.subgraphs[0]
        carried = hops.placeholders(test)[: len(inputs)]
        trip = _Assumed({**assumed.facts, **{node: _of_value(node) for node in carried}})
        (condition,) = hops.output_values(test)
        known = conditions.of_condition(condition, True, lambda side: self._of(side, trip), self.space)
        return {
            inside: known[before]
            for before, inside in zip(carried, inputs, strict=True)
            if before in known and _is_single(before)
        }

    def _range_of_symbol(self, symbol: sympy.Symbol) -> tuple[int | None, int | None]:
        sources = self._symbols.get(symbol)
        if sources is None:
            return self._sizes.get(symbol, (None, None))
        # Two calls that share a body give its symbol different values.
        if len(sources) > 1 or symbol in self._asked:
            return (None, None)
        self._asked.add(symbol)
        try:
            found = self.space.numeric(self._of_source(sources[0], symbol))
        finally:
            self._asked.remove(symbol)
        return _number(found.low), _number(found.high)

    def _define_symbols(self, module: GraphModule) -> None:
        """Note where each data-dependent size of a graph comes from."""
        seen: set[sympy.Symbol] = set()
        for node in module.graph.nodes:
            value = node.meta.get("val")
            is_tensor = isinstance(value, torch.Tensor)
            for size in value.shape if is_tensor else [value]:
                symbol = as_bound(size)
                if not isinstance(symbol, sympy.Symbol) or symbol in seen or not free_unbacked_symbols(size):
                    continue
                seen.add(symbol)
                # An operand's own graph defines its size.
                if not (node.op == "placeholder" and is_tensor and symbol in self._symbols):
                    self._symbols.setdefault(symbol, []).append(node)

    def _of_source(self, node: Node, symbol: sympy.Symbol) -> Interval:
        """The interval of a size that a node finds out."""
        if isinstance(node.meta["val"], torch.SymInt):
            found = self.of(node)
            return ANY if symbol in (found.low, found.high) else found
        if node.target is torch.ops.aten.nonzero.default:
            return Interval(0, as_bound(value_of(node.args[0]).numel()))
        return Interval(0)


def _carried(call: hops.Call) -> int:
    return len(call.operands(call.layout.carried)) if call.layout.carried is not None else 0


def _is_single(node: Node) -> bool:
    value = node.meta["val"]
    return not isinstance(value, torch.Tensor) or value.dim() == 0


def _of_value(node: Node) -> Interval:
    value = node.meta.get("val")
    return of_dtype(value.dtype) if isinstance(value, torch.Tensor) else ANY


def _of_number(number: object) -> Interval:
    if isinstance(number, bool | int):
        return Interval(int(number), int(number))
    if isinstance(number, float) and math.isfinite(number):
        return Interval(number, number)
    return ANY


def _input_intervals(entry: LegalEntry, tensors: Mapping[str, torch.Tensor]) -> dict[Node, Interval]:
    nodes = hops.placeholders(entry.graph)
    weights, inputs = len(entry.weights), len(entry.weights) + len(entry.signature.state)
    found = {node: _of_tensor(tensors[key]) for node, key in zip(nodes[:weights], entry.weights, strict=True)}
    found |= {
        node: _of_spec(node, spec)
        for node, spec in zip(nodes[inputs:], entry.signature.tensor_inputs, strict=True)
    }
    return found


def _of_tensor(tensor: torch.Tensor) -> Interval:
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex or not tensor.numel():
        return of_dtype(tensor.dtype)
    return Interval(*map(int, torch_arrays.extremes(tensor)))


def _of_spec(node: Node, spec: TensorSpec) -> Interval:
    dtype = node.meta["val"].dtype
    if spec.value_range is None or dtype.is_floating_point or dtype.is_complex:
        return of_dtype(dtype)
    low, high = spec.value_range
    return Interval(math.ceil(low), math.floor(high))


def _number(end: Any) -> int | None:
    return None if end is None or not math.isfinite(float(end)) else int(end)
