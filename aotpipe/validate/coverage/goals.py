"""What there is to reach in exported programs: sides of branches, trips of loops, failing asserts.

`goals(exported)` lists them, each with the user's line; `reached(trace)` says which of them a run reached.
A loop whose first test does not depend on the inputs has either no run of 0 trips or nothing else, and one
whose tests never do has the same trips in every call: such goals are left out, since no input reaches them.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any, Final

import torch
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node

from aotpipe.canonicalize.trace.decisions import STATEMENT
from aotpipe.core.coverage import Kind
from aotpipe.core.stages import Exported, ExportedEntry
from aotpipe.errors import SourceLine
from aotpipe.model import source
from aotpipe.passes import hops
from aotpipe.passes.extract import dependencies
from aotpipe.passes.ops import name_of
from aotpipe.passes.source_lines import nearest_line, source_line
from aotpipe.validate.coverage.interpreter import ASSERTS, CONNECTIVES, Decision, Trace

Key = tuple[Node, str]
"""A control-flow op or an assert, and what is to be reached of it."""
TRUE, FALSE, FAILS = "is true", "is false", "fails"
OPERANDS: Final = (
    *("has two operands that are false", "has its second operand true alone"),
    *("has its first operand true alone", "has two operands that are true"),
)
"""The combinations of the operands of `and` and `or`, by the outcome of their `Decision`."""
NONE, ONE, MANY, BOUND = "0 trips", "1 trip", "2 or more trips", "its bound"
_COND: Final = torch.ops.higher_order.cond
_WHILE: Final = torch.ops.higher_order.while_loop
_COPIES: Final = frozenset({"clone", "to", "_to_copy"})
_LIKE: Final = frozenset(
    "new_full new_zeros new_ones new_empty full_like zeros_like ones_like empty_like".split()
)
_ANDS: Final = frozenset({"logical_and", "bitwise_and", "__and__"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Something to reach in a graph.

    Attributes:
        optional: Whether it may be that nothing reaches it.
        bound: The trips after which a loop's own count ends it.
    """

    entry_point: str
    kind: Kind
    what: str
    where: SourceLine | None
    optional: bool = False
    bound: int = 0


def targets(exported: Exported) -> dict[Key, Target]:
    """Everything to reach in all entry points."""
    found: dict[Key, Target] = {}
    for entry in exported.entries:
        found.update(_of_graph(entry, _Dependence(entry), entry.program.graph_module, None))
    return found


def reached(trace: Trace, targets: Mapping[Key, Target]) -> dict[Key, int]:
    """What a run reached, and the number of the call that was the first to."""
    found: dict[Key, int] = {}
    for decision in trace.decisions:
        for key in _reached(decision, targets):
            if key in targets:
                found.setdefault(key, decision.call)
    return found


def _reached(decision: Decision, targets: Mapping[Key, Target]) -> Iterator[Key]:
    node = decision.node
    if node.target is _WHILE:
        trips = decision.outcome
        yield node, NONE if trips == 0 else ONE if trips == 1 else MANY
        if (target := targets.get((node, BOUND))) is not None and trips == target.bound:
            yield node, BOUND
    elif node.target in ASSERTS:
        if not decision.outcome:
            yield node, FAILS
    elif node.target in CONNECTIVES:
        yield node, OPERANDS[decision.outcome]
    else:
        yield node, TRUE if decision.outcome else FALSE


def _of_graph(
    entry: ExportedEntry, dependence: _Dependence, module: GraphModule, line: SourceLine | None
) -> Iterator[tuple[Key, Target]]:
    for node in module.graph.nodes:
        # Torch's own checks of sizes have no line, and hold wherever it knows the size.
        if node.target in ASSERTS and isinstance(node.args[0], Node) and (where := source_line(node)):
            yield (
                (node, FAILS),
                Target(entry_point=entry.name, kind="assert", what=FAILS, where=where, optional=True),
            )
        # Not every combination is one that inputs can give: `x < 0 or x > 1`.
        if (
            node.target in CONNECTIVES
            and all(map(_is_one_flag, node.args))
            and all(map(dependence.of, node.args))
        ):
            where = source_line(node) or line
            for what in OPERANDS:
                target = Target(entry_point=entry.name, kind="branch", what=what, where=where, optional=True)
                yield (node, what), target
        for body in _bodies(module, node):
            where = _line(node) or line
            yield from _of_graph(entry, dependence, body, where)
        if node.target is _COND and isinstance(node.args[0], Node):
            if dependence.of(node.args[0]):
                where = _line(node) or line
                for what in (TRUE, FALSE):
                    yield (node, what), Target(entry_point=entry.name, kind="branch", what=what, where=where)
        elif node.target is _WHILE:
            where = _line(node) or line
            for what, bound in _trips(dependence, hops.call_of(node)):
                yield (
                    (node, what),
                    Target(entry_point=entry.name, kind="loop", what=what, where=where, bound=bound),
                )


def _is_one_flag(argument: Any) -> bool:
    """Whether an operand is one bool, as Python's `and` has, and not bits of numbers."""
    value = argument.meta.get("val") if isinstance(argument, Node) else None
    return isinstance(value, torch.Tensor) and value.dtype == torch.bool and not value.dim()


def _bodies(module: GraphModule, node: Node) -> list[GraphModule]:
    names = [str(each.target) for each in node.all_input_nodes if each.op == "get_attr"]
    found = [operator.attrgetter(name)(module) for name in names if node.op == "call_function"]
    return [each for each in found if isinstance(each, GraphModule)]


def _line(node: Node) -> SourceLine | None:
    """The line of the statement that a control-flow op is, else of what decides, else torch's own."""
    if place := (node.meta.get("custom") or {}).get(STATEMENT):
        path, line = place
        # Of a loop it is the first line of its body.
        header = _header(path, line) if node.target is _WHILE else line
        return SourceLine(source.shown(path), header)
    test = node.args[0]
    if node.target is _COND and isinstance(test, Node):
        return nearest_line(test)
    if node.target is _WHILE:
        tested = (source_line(each) for each in reversed(hops.call_of(node).subgraphs[0].graph.nodes))
        return source_line(node) or next(filter(None, tested), None) or nearest_line(node)
    return source_line(node)


def _header(path: str, line: int) -> int:
    tree = source.syntax(path)
    loops = (each for each in ast.walk(tree) if isinstance(each, ast.While | ast.For)) if tree else ()
    around = (each.lineno for each in loops if each.lineno < line <= (each.end_lineno or line))
    return max(around, default=line)


def _trips(dependence: _Dependence, call: hops.Call) -> Iterator[tuple[str, int]]:
    test, body = call.subgraphs
    carried = call.operands(2)
    [again] = hops.output_values(test)
    inputs = hops.placeholders(test)
    read = _placeholders_of(again)
    operands = dict(zip(inputs, call.all_operands, strict=True))
    is_first_fixed = not any(dependence.of(operands[each]) for each in read)
    # What the later tests depend on: through the body, to a fixpoint.
    used = {inputs.index(each) for each in read}
    returned, of_body = hops.output_values(body), hops.placeholders(body)
    while True:
        more = {
            of_body.index(each)
            for index in used
            if index < len(carried)
            for each in _placeholders_of(returned[index])
        }
        if more <= used:
            break
        used |= more
    if not any(dependence.of(operands[inputs[index]]) for index in used):
        return
    bound = _bound(again, inputs, carried, returned, of_body)
    if not is_first_fixed:
        yield NONE, 0
    if bound != 1:
        yield ONE, 0
        if bound != 2:  # two trips are the bound then
            yield MANY, 0
    if bound:
        yield BOUND, bound


def _bound(
    again: Any,
    inputs: Sequence[Node],
    carried: Sequence[Any],
    returned: Sequence[Any],
    of_body: Sequence[Node],
) -> int:
    """The trips after which a loop's own count ends it; 0 where it has none that is known."""
    for compared in _conjuncts(again):
        if name_of(compared) not in ("lt", "le") or not isinstance(compared.args[1], int):
            continue
        counter = _origin(compared.args[0])
        if counter not in inputs or (index := inputs.index(counter)) >= len(carried):
            continue
        start, step = _constant(carried[index]), _step(returned[index], of_body[index])
        if start is not None and step > 0:
            limit = compared.args[1] + (name_of(compared) == "le")
            return max(0, ceil((limit - start) / step))
    return 0


def _conjuncts(node: Any) -> Iterator[Node]:
    node = _origin(node)
    if isinstance(node, Node) and node.op == "call_function":
        if name_of(node) in _ANDS:
            for each in node.args:
                yield from _conjuncts(each)
        else:
            yield node


def _origin(node: Any) -> Any:
    while isinstance(node, Node) and node.op == "call_function" and name_of(node) in _COPIES:
        node = node.args[0]
    return node


def _constant(node: Any) -> int | None:
    node = _origin(node)
    if isinstance(node, int):
        return node
    if isinstance(node, Node) and name_of(node) in ("full", "scalar_tensor", "zeros"):
        value = 0 if name_of(node) == "zeros" else node.args[-1]
        return value if isinstance(value, int) else None
    return None


def _step(node: Any, counter: Node) -> int:
    node = _origin(node)
    is_sum = isinstance(node, Node) and name_of(node) == "add" and isinstance(node.args[1], int)
    return node.args[1] if is_sum and _origin(node.args[0]) is counter else 0


def _placeholders_of(value: Any) -> set[Node]:
    """The inputs of a graph that a value depends on."""
    return {each for each in dependencies([value]) if each.op == "placeholder"}


class _Dependence:
    """Which values of a program may differ between calls: those made of inputs, or of state."""

    def __init__(self, entry: ExportedEntry) -> None:
        self._program = entry.program

    @cached_property
    def _operands(self) -> Mapping[Node, list[Any]]:
        """What may be passed to the placeholders of subgraphs."""
        found: dict[Node, list[Any]] = {}
        for module in hops.walk(self._program.graph_module):
            for call in hops.calls(module):
                for body in call.subgraphs:
                    inputs = hops.placeholders(body)
                    for node, operand in zip(inputs, call.all_operands, strict=False):
                        found.setdefault(node, []).append(operand)
                if call.layout.carried is not None:
                    body = call.subgraphs[-1]
                    carried = len(call.operands(call.layout.carried))
                    for subgraph in call.subgraphs:
                        inputs = hops.placeholders(subgraph)[:carried]
                        for node, value in zip(inputs, hops.output_values(body), strict=False):
                            found.setdefault(node, []).append(value)
        return found

    @cached_property
    def _varying(self) -> frozenset[Node]:
        specs = self._program.graph_signature.input_specs
        kinds = (InputKind.USER_INPUT, InputKind.BUFFER)
        nodes = hops.placeholders(self._program.graph_module)
        return frozenset(node for node, spec in zip(nodes, specs, strict=True) if spec.kind in kinds)

    def of(self, value: Any) -> bool:
        """Whether a value of a graph may differ between calls."""
        seen: set[Node] = set()
        stack = [value]
        while stack:
            node = stack.pop()
            if not isinstance(node, Node) or node in seen:
                continue
            seen.add(node)
            if node in self._varying or _is_unknown(node):
                return True
            if node.op == "placeholder":
                stack += self._operands.get(node, ())
            if node.target is operator.getitem and isinstance(node.args[0], Node):
                stack.append(node.args[0])
            # Of what only gives its dtype and its shape no value is taken.
            stack += [] if name_of(node) in _LIKE else node.all_input_nodes
            if node.target in hops.LAYOUTS:
                for body in hops.call_of(node).subgraphs:
                    stack += hops.output_values(body)
        return False


def _is_unknown(node: Node) -> bool:
    """Whether a subgraph's way is not followed, or a number is drawn."""
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags or "wrap" in str(node.target)
