"""Runs exported programs op by op in eager, and records what each control-flow op and each assert decided.

`Interpreter(exported).run(calls)` runs calls from the initial state and gives every `Decision` in order. Each
holds the frame in which its predicate was computed, so that `distance` can say how far it was from the other
outcome. A call whose assert does not hold ends the run, as eager's exception does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from aotpipe.core.dtypes import Array
from aotpipe.core.stages import Exported, ExportedEntry
from aotpipe.model.torch_arrays import from_numpy
from aotpipe.passes import hops, ops
from aotpipe.passes.source_lines import nearest_line
from aotpipe.validate.inputs import Call

_HOP: Final = torch.ops.higher_order
_INLINED: Final = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}
"""Ops that run a subgraph in a mode, with the position of the subgraph among their arguments."""
ASSERTS: Final = frozenset({ops.ASSERT_TENSOR, ops.ASSERT_TENSOR_SILENT, ops.ASSERT_NUMBER})
"""What `torch._check` and `assert` over a tensor are in a graph."""
CONNECTIVES: Final = ops.overloads("logical_and logical_or logical_xor") | ops.overloads(
    "bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor __and__.Tensor __or__.Tensor __xor__.Tensor"
)
"""What `and` and `or` of tensors are in a graph, and what they become where that is wrong."""
_MOST_TRIPS: Final = 100_000
_ELEMENTS: Final = 4096
"""An op on so many elements takes about twice the time of one on a few."""


class TooLong(Exception):
    """A run took more work, or a loop more trips, than it may."""


class Refused(Exception):
    """An assert of the program does not hold."""


@dataclass(slots=True, eq=False)
class Frame:
    """One run of a graph.

    Attributes:
        values: Of each node.
        outer: Of placeholders: the frame that the operand comes from, and what it is there.
        inner: Of control-flow ops: the last run of a subgraph, and what it returned there.
    """

    values: dict[Node, Any] = field(default_factory=dict)
    outer: dict[Node, tuple[Frame, Any]] = field(default_factory=dict)
    inner: dict[Node, tuple[Frame, list[Any]]] = field(default_factory=dict)

    def value(self, argument: Any) -> Any:
        """The value of a node; anything else is one."""
        return self.values[argument] if isinstance(argument, Node) else argument


@dataclass(frozen=True, slots=True)
class Decision:
    """What one control-flow op or assert did in one run of its graph.

    Attributes:
        call: The number in its run of the call that it was in.
        outcome: The side of a branch, whether an assert holds, the number of trips of a loop; of `and` and
            `or` twice the truth of the first operand, and that of the second.
        tests: The predicate: its frame, and what it is there. Of a loop the first two tests, and the last; of
            `and` and `or` both operands; empty in a run without a limit.
    """

    node: Node
    call: int
    outcome: int
    tests: tuple[tuple[Frame, Any], ...]


@dataclass(slots=True)
class Trace:
    """The decisions of a run, and how many of its calls were answered.

    Attributes:
        refused: Whether an assert ended it.
        fault: What ended it: the op and what it raised; empty where every call was answered.
        leaves: The inputs of floats of each call, by name, where gradients are asked for.
        work: The ops that were run, of which one on many elements counts as several. Unlike seconds it is
            the same on each machine.
    """

    decisions: list[Decision] = field(default_factory=list)
    answered: int = 0
    refused: bool = False
    fault: str = ""
    leaves: list[dict[str, torch.Tensor]] = field(default_factory=list)
    work: int = 0


class Interpreter:
    """The exported entry points of a model, with their state."""

    def __init__(self, exported: Exported) -> None:
        names = {entry.name: entry.input_names for entry in exported.canonical.entries}
        self._entries = {entry.name: entry for entry in exported.entries}
        self._names = {name: names[name] for name in self._entries}
        self._state: dict[int, torch.Tensor] = {}
        self._found = Trace()
        self._limit: int | None = 0
        self._node: Node | None = None

    def run(self, calls: Iterable[Call], *, limit: int | None, gradients: bool = False) -> Trace:
        """Run calls from the initial state; an assert that does not hold, or an op that raises, ends them.

        Without a limit what decided is not kept, so that memory is bounded: a decision has no tests then.

        Raises:
            TooLong: It takes more work than `limit`, or a loop too many trips.
        """
        self._found, self._state, self._limit, self._node = Trace(), {}, limit, None
        with torch.set_grad_enabled(gradients):
            for call in calls:
                try:
                    self._call(self._entries[call.entry_point], call.inputs, gradients=gradients)
                except TooLong:
                    raise
                except Refused:
                    self._found.refused = True
                    self._found.fault = f"{self._place()} does not hold"
                    break
                # What no op takes, eager does not take either, unless the interpreter is wrong.
                except Exception as error:  # noqa: BLE001
                    self._found.fault = f"{self._place()} raises {type(error).__name__}: {error}"
                    break
                self._found.answered += 1
        return self._found

    def _call(self, entry: ExportedEntry, inputs: Mapping[str, Array], *, gradients: bool) -> None:
        program = entry.program
        module, signature = program.graph_module, program.graph_signature
        leaves: dict[str, torch.Tensor] = {}
        self._found.leaves.append(leaves)
        names = iter(self._names[entry.name])
        constants = {leaf.name: leaf.value for leaf in entry.signature.inputs if hasattr(leaf, "value")}
        held: dict[str, torch.Tensor] = {}
        arguments: list[Any] = []
        for node, spec in zip(hops.placeholders(module), signature.input_specs, strict=True):
            if spec.kind in hops.HELD:
                held[str(spec.target)] = tensor = self._held(program, spec)
                arguments.append(tensor)
                continue
            name = next(names) if spec.kind is InputKind.USER_INPUT else ""
            if name not in inputs:
                arguments.append(constants.get(name))
                continue
            value: Any = from_numpy(inputs[name])
            if not isinstance(node.meta["val"], torch.Tensor):
                value = value.item()
            elif gradients and value.is_floating_point():
                leaves[name] = value.clone().requires_grad_()
                value = leaves[name].clone()
            else:
                value = value.clone()
            arguments.append(value)
        frame = self._run(module, arguments)
        for spec, value in zip(signature.output_specs, hops.output_values(module), strict=True):
            if spec.kind in hops.WRITTEN:
                held[str(spec.target)].data = frame.value(value)

    def _held(self, program: Any, spec: Any) -> torch.Tensor:
        tensor = hops.held(program, str(spec.target))
        if spec.kind is InputKind.PARAMETER and not _writes_parameters(program):
            return tensor.detach()
        return self._state.setdefault(id(tensor), tensor.detach().clone())

    def _run(
        self, module: GraphModule, arguments: Sequence[Any], outer: Sequence[tuple[Frame, Any]] = ()
    ) -> Frame:
        frame, given = Frame(), iter(arguments)
        if self._limit is not None:
            frame.outer.update(zip(hops.placeholders(module), outer, strict=False))
        done = _done_with(module) if self._limit is None else {}
        for node in module.graph.nodes:
            if node.op == "placeholder":
                frame.values[node] = next(given)
            elif node.op == "get_attr":
                found: Any = module
                for part in str(node.target).split("."):
                    found = getattr(found, part)
                frame.values[node] = found
            elif node.op == "call_function":
                frame.values[node] = result = self._op(frame, node)
                many = result.numel() // _ELEMENTS if isinstance(result, torch.Tensor) else 0
                self._found.work += 1 + many
                for each in done.get(node, ()):
                    del frame.values[each]
        if self._limit is not None and self._found.work > self._limit:
            raise TooLong
        return frame

    def _op(self, frame: Frame, node: Node) -> Any:
        self._node = node
        args, kwargs = pytree.tree_map_only(Node, frame.values.__getitem__, (node.args, node.kwargs))
        if node.target is _HOP.cond:
            return self._cond(frame, node, *args)
        if node.target is _HOP.while_loop:
            return self._while(frame, node, *args)
        if node.target in ASSERTS:
            holds = bool(args[0])
            self._decide(node, holds, (frame, node.args[0]))
            if not holds:
                raise Refused
            return None
        if node.target in CONNECTIVES and all(map(_is_one_flag, args)):
            outcome = 2 * bool(args[0]) + bool(args[1])
            self._decide(node, outcome, *((frame, each) for each in node.args))
        name = getattr(node.target, "__name__", "")
        if name in _INLINED:
            position = _INLINED[name]
            body = args[position]
            inner = self._run(
                body, args[position + 1 :], [(frame, each) for each in node.args[position + 1 :]]
            )
            return self._returned(frame, node, inner, body)
        # The subgraphs of other control-flow ops are called by torch's own code.
        args = tuple(self._callable(each) if isinstance(each, GraphModule) else each for each in args)
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def _place(self) -> str:
        if self._node is None:
            return "no op"
        line = nearest_line(self._node)
        return f"`{self._node}`" + (f" of {line}" if line else "")

    def _decide(self, node: Node, outcome: int, *tests: tuple[Frame, Any]) -> None:
        kept = () if self._limit is None else tests
        self._found.decisions.append(Decision(node, self._found.answered, outcome, kept))

    def _callable(self, body: GraphModule) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            frame = self._run(body, arguments)
            returned = body.graph.output_node().args[0]
            return pytree.tree_map_only(Node, frame.values.__getitem__, returned)

        return call

    def _cond(
        self, frame: Frame, node: Node, test: Any, then: GraphModule, other: GraphModule, operands: Any
    ) -> Any:
        holds = bool(test)
        self._decide(node, holds, (frame, node.args[0]))
        body = then if holds else other
        named: Any = node.args[3]
        return self._returned(frame, node, self._run(body, operands, [(frame, each) for each in named]), body)

    def _while(
        self, frame: Frame, node: Node, test: GraphModule, body: GraphModule, carried: Any, extra: Any = ()
    ) -> Any:
        inits: Any = node.args[2]
        last = frame, list(inits)
        read = [(frame, each) for each in (node.args[3] if len(node.args) > 3 else ())]  # type: ignore[union-attr]
        tests: list[tuple[Frame, Any]] = []
        [again] = hops.output_values(test)
        values, trips = tuple(carried), 0
        while True:
            # Only what decides needs a way back: that of all values would keep those of every trip.
            sources = [
                (last[0], each) if _is_flag(value) and self._limit is not None else (frame, value)
                for each, value in zip(last[1], values, strict=True)
            ]
            tried = self._run(test, (*values, *extra), [*sources, *read])
            tests = [*tests[:2], (tried, again)]
            if not bool(tried.value(again)):
                break
            if trips == _MOST_TRIPS:
                raise TooLong
            inner = self._run(body, (*values, *extra), [*sources, *read])
            returned = hops.output_values(body)
            last = inner, returned
            values = tuple(inner.value(each) for each in returned)
            trips += 1
        self._decide(node, trips, *tests)
        if self._limit is not None:
            frame.inner[node] = last
        return values

    def _returned(self, frame: Frame, node: Node, inner: Frame, body: GraphModule) -> Any:
        returned = hops.output_values(body)
        if self._limit is not None:
            frame.inner[node] = inner, returned
        values = tuple(inner.value(each) for each in returned)
        return values if isinstance(body.graph.output_node().args[0], tuple | list) else values[0]


def _done_with(module: GraphModule) -> dict[Node, list[Node]]:
    """The values that nothing reads after an op."""
    last = {used: node for node in module.graph.nodes for used in node.all_input_nodes}
    found: dict[Node, list[Node]] = {}
    for used, node in last.items():
        found.setdefault(node, []).append(used)
    return found


def _is_one_flag(value: Any) -> bool:
    return _is_flag(value) and not value.dim()


def _is_flag(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.bool


def _writes_parameters(program: Any) -> bool:
    kinds = {spec.kind for spec in program.graph_signature.output_specs}
    return OutputKind.PARAMETER_MUTATION in kinds
