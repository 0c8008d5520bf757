"""Asserts become results: one 0-d bool per assert that can fail.

`raise_up(entry)` takes the asserts out of a graph and its subgraphs (`_assert_async`, `_assert_scalar`: what
`torch._check`, `assert` over a tensor and torch's own runtime asserts have become) and gives the entry with a
trailing 0-d bool output and a message for each. An assert inside a control-flow body leaves it as one more
result: of the branch, of the scanned outputs, or as a carry that stays true while the assert holds. One in a
loop's test is repeated in the body, and on the final carries.

What the signature implies is dropped: torch has decided those over sizes that the dims' ranges settle, and
`proven` settles the rest. Nothing else is dropped.

The states that a call which raises keeps (`Signature.kept_on_raise`) have their values for it where one of
the model's own asserts fails first. Where another one does, such as that of an index, they are as before.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from pathlib import PurePath
from typing import Any, Final, NamedTuple

import torch
from torch.fx import GraphModule, Node

from aotpipe.core.stages import KEEPS_WRITES, LegalEntry
from aotpipe.errors import UnsupportedOps
from aotpipe.passes import hops, ops, scalars
from aotpipe.passes.emit import Emitter, fake_mode
from aotpipe.passes.extract import graft
from aotpipe.passes.source_lines import nearest_line, source_line

_ATEN: Final = torch.ops.aten
_HOP: Final = torch.ops.higher_order
_OVER_TENSORS: Final = frozenset({ops.ASSERT_TENSOR, ops.ASSERT_TENSOR_SILENT})
_TORCHS_OWN: Final = re.compile(r"Runtime assertion failed for expression (?P<what>.+?) on node '.*'")
# What torch asserts of a size that only a run knows, which a squeeze or a broadcast would drop or expand.
_NOT_ONE: Final = re.compile(r"Ne\(u\d+, 1\)")

Proven = Callable[[Node], bool]


class Assert(NamedTuple):
    """An assert that was taken out of a graph.

    Attributes:
        message: What to say where it does not hold.
        holds: A 0-d bool.
        keeps: Whether what the call wrote before it is kept where it does not hold.
    """

    message: str
    holds: Node
    keeps: bool = False


def raise_up(entry: LegalEntry, proven: Proven = lambda _: False) -> LegalEntry:
    """Turn the asserts of an entry into outputs.

    The entry is in control-flow normal form. `proven` tells whether a node that is asserted always holds.
    """
    made = _collect(entry.graph, proven)
    found = _unite(entry.graph, made)
    values = hops.output_values(entry.graph)
    values = [*_states_kept(entry, values, made), *found.values()]
    hops.set_output_values(entry.graph, values)
    entry.graph.graph.eliminate_dead_code()
    entry.graph.graph.lint()
    entry.graph.recompile()
    return replace(entry, asserts=(*entry.asserts, *found))


def _states_kept(entry: LegalEntry, values: Sequence[Node], made: Sequence[Assert]) -> list[Node]:
    """The results, in which a state is as it was before the call where an assert that keeps nothing fails."""
    signature = entry.signature
    if not signature.kept_on_raise or all(each.keeps for each in made):
        return list(values)
    emit = Emitter(entry.graph, entry.graph.graph.output_node())
    holds: Node | None = None
    fails: list[Node] = []
    for each in made:
        if each.keeps:
            holds = each.holds if holds is None else _all(emit, [holds, each.holds])
            continue
        first = emit(_ATEN.logical_not.default, each.holds)
        fails.append(first if holds is None else _all(emit, [holds, first]))
    is_back = reduce(partial(emit, _ATEN.logical_or.default), fails)
    states = hops.placeholders(entry.graph)[len(entry.weights) :]
    found = list(values)
    for place, (spec, before) in enumerate(
        zip(signature.state, states, strict=False), len(values) - len(signature.state)
    ):
        if spec.name in signature.kept_on_raise:
            found[place] = emit(_ATEN.where.self, is_back, before, found[place])
    return found


def _collect(module: GraphModule, proven: Proven) -> list[Assert]:
    """Take the asserts out of a graph, in the order in which it comes to them."""
    found: list[tuple[Node, Assert]] = []
    places = {node: place for place, node in enumerate(module.graph.nodes)}
    for node in list(module.graph.nodes):
        if node.target in _OVER_TENSORS or node.target is ops.ASSERT_NUMBER:
            condition = node.args[0]
            if not (proven(condition) if isinstance(condition, Node) else condition):
                keeps = KEEPS_WRITES in (node.meta.get("custom") or {})
                found.append((node, Assert(_message(node), _condition(module, node), keeps)))
            module.graph.erase_node(node)
    for call in hops.calls(module):
        bodies = [_unite(body, _collect(body, proven)) for body in call.subgraphs]
        if any(bodies):
            found += [(call.node, Assert(*each)) for each in _LEAVE[call.node.target](call, bodies)]
            for body in call.subgraphs:
                body.graph.lint()
                body.recompile()
    return [each for _, each in sorted(found, key=lambda pair: places[pair[0]])]


def _condition(module: GraphModule, node: Node) -> Node:
    emit = Emitter(module, node)
    condition = node.args[0]
    if node.target is ops.ASSERT_NUMBER or not isinstance(condition, Node):
        return scalars.as_tensor(emit, condition, torch.bool)
    value = condition.meta["val"]
    if value.dim():
        condition = emit(_ATEN.view.default, condition, [])
    return condition if value.dtype is torch.bool else emit(_ATEN.ne.Scalar, condition, 0)


def _message(node: Node) -> str:
    """The user's own words, or what torch checks; a file by its bare name, as paths differ between hosts."""
    text = str(node.args[1]) if len(node.args) > 1 else ""
    own = _TORCHS_OWN.search(text)
    if own:
        text = f"a size or number is not as the model needs it: {own['what']}"
        if _NOT_ONE.fullmatch(own["what"]):
            text += "; if `squeeze()` meets one row here, name the dim that it drops: `squeeze(1)`"
    line = nearest_line(node)
    place = f" ({PurePath(line.path).name}:{line.line})" if line else ""
    return f"{text or 'an assert of the model does not hold'}{place}"


def _unite(module: GraphModule, found: Sequence[Assert]) -> dict[str, Node]:
    by_message: dict[str, list[Node]] = {}
    for each in found:
        by_message.setdefault(each.message, []).append(each.holds)
    emit = Emitter(module, module.graph.output_node())
    return {message: _all(emit, several) for message, several in by_message.items()}


def _all(emit: Emitter, holds: Sequence[Node]) -> Node:
    return reduce(partial(emit, _ATEN.logical_and.default), holds)


Bodies = Sequence[dict[str, Node]]


def _leave_cond(call: hops.Call, bodies: Bodies) -> Iterator[tuple[str, Node]]:
    """Each branch gives a bool per message; the one that asserts nothing gives true."""
    messages = list(dict.fromkeys(message for found in bodies for message in found))
    for body, found in zip(call.subgraphs, bodies, strict=True):
        emit = Emitter(body, body.graph.output_node())
        added = [found.get(message) or _true(emit) for message in messages]
        hops.set_output_values(body, [*hops.output_values(body), *added])
    for message in messages:
        yield message, _new_result(call, _flag(call))


def _leave_scanned(call: hops.Call, bodies: Bodies) -> Iterator[tuple[str, Node]]:
    """Each trip gives a bool per message; all of them must be true."""
    (body,), (found,) = call.subgraphs, bodies
    hops.set_output_values(body, [*hops.output_values(body), *found.values()])
    assert call.layout.sliced is not None
    trips = scalars.value_of(call.operands(call.layout.sliced)[0]).shape[0]
    for message in found:
        flags = _new_result(call, _flag(call).new_empty((trips,)))
        yield message, scalars.all_true(Emitter(call.owner, flags.next, cause=call.node), flags)


def _leave_while(call: hops.Call, bodies: Bodies) -> Iterator[tuple[str, Node]]:
    """A bool per message is carried, and the loop ends when one is false.

    An assert in the test holds for the initial carries, and after each trip for the next ones.
    """
    (test, body), (in_test, in_body) = call.subgraphs, bodies
    messages = list(dict.fromkeys([*in_test, *in_body]))
    carried = call.operands(2)
    at_start = graft(call.owner, call.node, test, call.all_operands, list(in_test.values()))
    end = body.graph.output_node()
    extra = hops.placeholders(body)[len(carried) :]
    after_trip = graft(body, end, test, [*hops.output_values(body), *extra], list(in_test.values()))
    first = dict(zip(in_test, at_start, strict=True))
    trips = [in_body, dict(zip(in_test, after_trip, strict=True))]
    start, emit = Emitter(call.owner, call.node), Emitter(body, end)
    going_on, next_carries, inits = [], hops.output_values(body), list(carried)
    for index, message in enumerate(messages, start=len(carried)):
        before, inside = (hops.add_placeholder(graph, "holds", _flag(call), index) for graph in (test, body))
        next_carries.append(_all(emit, [inside, *(trip[message] for trip in trips if message in trip)]))
        inits.append(first.get(message) or _true(start))
        going_on.append(before)
    hops.set_output_values(body, next_carries)
    # The test is false where one of the flags is.
    emit_test = Emitter(test, test.graph.output_node())
    (again,) = hops.output_values(test)
    if not isinstance(scalars.value_of(again), torch.Tensor):
        again = scalars.as_tensor(emit_test, again, torch.bool)
    hops.set_output_values(test, [_all(emit_test, [again, *going_on])])
    call.set_operands(2, inits)
    for message in messages:
        yield message, _new_result(call, _flag(call))


def _refuse(call: hops.Call, bodies: Bodies) -> Iterator[tuple[str, Node]]:
    message = next(message for found in bodies for message in found)
    raise UnsupportedOps(
        "an assert inside associative_scan",
        reason=f"its function is called in no fixed order, so nothing can carry the assert out: {message}",
        hint="check the operands before the scan",
        where=source_line(call.node),
    )


_LEAVE: Final[Mapping[Any, Callable[[hops.Call, Bodies], Iterator[tuple[str, Node]]]]] = {
    _HOP.cond: _leave_cond,
    _HOP.while_loop: _leave_while,
    _HOP.map_impl: _leave_scanned,
    _HOP.scan: _leave_scanned,
    _HOP.associative_scan: _refuse,
}


def _new_result(call: hops.Call, value: torch.Tensor) -> Node:
    values = tuple(call.node.meta["val"])
    call.node.meta["val"] = (*values, value)
    with call.owner.graph.inserting_after(call.node):
        taken = call.owner.graph.call_function(operator.getitem, (call.node, len(values)))
    taken.meta = {**call.node.meta, "val": value}
    return taken


def _flag(call: hops.Call) -> torch.Tensor:
    with fake_mode(call.owner):
        return torch.empty((), dtype=torch.bool)


def _true(emit: Emitter) -> Node:
    return emit(_ATEN.full.default, [], True, dtype=torch.bool)
