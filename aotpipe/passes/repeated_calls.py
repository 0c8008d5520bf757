"""Decomposes each different call of a program once.

torch's `run_decompositions` traces a whole program twice, at some milliseconds a call, and a model calls the
same ops with the same shapes in layer after layer. `decompose(program, table)` gives what torch would, from a
program of one call of each kind: torch decomposes that, and what came of a call takes the place of every call
of its kind.

A kind is an op, its numbers, and the shapes, strides and dtypes of its tensors. These come from what was
decomposed before them, whose strides may not be those of the exported program: calls are met again until
none is new. Where nothing else sees a tensor that a call writes to, the call gives a new one, which takes its
place from there on. Programs with other writes, control flow, sizes that vary or numbers that are computed
are torch's to decompose whole.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from aotpipe.passes import alias_copies, decompositions, hops, ops
from aotpipe.passes.decompositions.entries import static
from aotpipe.passes.emit import fake_mode
from aotpipe.passes.extract import dependencies

Table = Mapping[Any, Callable[..., Any]]
Kind = tuple[object, ...]

# A round learns the strides that decomposed calls give, on which later kinds depend: attention takes three.
_ROUNDS: Final = 5
# To trace one more program takes as long as this many calls; where most calls differ, nothing is saved.
_FEWEST_REPEATS: Final = 24
_FEWEST_REPEATED: Final = 0.5
_PLAIN: Final = frozenset(
    {InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR, InputKind.USER_INPUT}
)
# The metadata that a new node takes from its call; the rest describes the ops that were traced.
_OF_THE_CALL: Final = ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node", "custom")


@dataclass(frozen=True, slots=True)
class _Call:
    """A call with what its arguments hold."""

    node: Node
    op: Any
    tensors: Sequence[Node]
    values: Sequence[torch.Tensor]

    @property
    def kind(self) -> Kind:
        """What decomposes to the same."""
        indices = {node: index for index, node in enumerate(self.tensors)}
        leaves, spec = pytree.tree_flatten((self.node.args, self.node.kwargs))
        shown = (
            indices[leaf] if isinstance(leaf, Node) else (type(leaf), repr(leaf))  # 1 == 1.0 == True
            for leaf in leaves
        )
        return (self.op, str(spec), *shown, *map(_shape, self.values))


@dataclass(frozen=True, slots=True)
class _Piece:
    """What a kind of call decomposes to.

    Attributes:
        inputs: A placeholder for each of its tensors.
    """

    inputs: Sequence[Node]
    nodes: Sequence[Node]
    results: Any
    value: Any


def decompose(program: ExportedProgram, table: Table) -> ExportedProgram | None:
    """Give what `program.run_decompositions(table)` gives; None where it is torch's to decompose.

    Raises:
        Exception: What torch raises on one of the calls, or on one that is not met at all.
    """
    if (found := _ops(program)) is None:
        return None
    known: dict[Kind, _Piece] = {}
    for _ in range(_ROUNDS):
        new: dict[Kind, _Call] = {}
        for call in _calls(program, found, known):
            if call.kind not in known:
                new.setdefault(call.kind, call)
        if not new:
            return _joined(program, found, known)
        repeated = len(found) - len(known) - len(new)
        if repeated < max(_FEWEST_REPEATS, _FEWEST_REPEATED * len(found)):
            return None
        if (pieces := _decomposed(new, fake_mode(program.graph_module), table)) is None:
            return None
        known.update(pieces)
    return None


def _ops(program: ExportedProgram) -> dict[Node, Any] | None:
    """Give each call an op that writes nothing; None where the program has other nodes than such calls."""
    signature = program.graph_signature
    if any(spec.kind not in _PLAIN for spec in signature.input_specs) or any(
        spec.kind is not OutputKind.USER_OUTPUT for spec in signature.output_specs
    ):
        return None
    found: dict[Node, Any] = {}
    memory = _Memory()
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.target is ops.ASSERT_METADATA:
            continue
        if node.op in ("placeholder", "call_function"):
            is_call = node.op == "call_function" and node.target is not operator.getitem
            op = _functional(node) if is_call else node.target
            if not _is_static(value) or (is_call and value is None) or op is None:
                return None
            if op is node.target:
                memory.made(node)
            elif memory.is_seen(node):
                return None
            if is_call:
                found[node] = op
        elif node.op != "output":
            return None
    return found


class _Memory:
    """Which tensors of a program share memory with one before, by what schemas say and by what was traced.

    Ops that torch composes of others may give a view, or their operand, and their schema says nothing of it.
    """

    def __init__(self) -> None:
        self._owners: dict[int, Node] = {}
        self._shared: set[Node] = set()

    def made(self, node: Node) -> None:
        """Note the memory of a node that writes nothing."""
        owner = alias_copies.owner(node)
        owners = {owner} if owner is not node else set()
        for place in _storages(node):
            owners.add(self._owners.setdefault(place, owner))
        if node.op == "placeholder" or owners - {node}:
            self._shared |= {*owners, node}

    def is_seen(self, write: Node) -> bool:
        """Whether what a node writes to is an input, or seen through another node."""
        owners = {self._owners.get(place, write) for place in _storages(write)}
        return not self._shared.isdisjoint({*owners, alias_copies.owner(write)})


def _storages(node: Node) -> list[int]:
    return list(map(ops.storage, ops.tensors(node)))


def _functional(node: Node) -> Any:
    """The op that gives what a node's op gives, and writes nothing; None where there is none."""
    schema = ops.schema(node)
    if schema is None or not schema.is_mutable:
        return schema and node.target
    namespace, _, name = schema.name.partition("::")
    written = [each.alias_info is not None and each.alias_info.is_write for each in schema.arguments]
    if namespace != "aten" or written != [True] + [False] * (len(written) - 1):
        return None
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    return getattr(packet, schema.overload_name or "default", None) if name.endswith("_") else None


def _is_static(value: Any) -> bool:
    """Whether every number in a value is known while tracing."""
    return not any(
        isinstance(each, torch.SymInt | torch.SymFloat | torch.SymBool)
        or (
            isinstance(each, torch.Tensor)
            and (
                each.layout is not torch.strided
                or not all(map(static, (*each.shape, *each.stride(), each.storage_offset())))
            )
        )
        for each in pytree.tree_leaves(value)
    )


def _shape(value: torch.Tensor) -> Kind:
    return (value.dtype, value.device, tuple(value.shape), value.stride(), value.is_conj(), value.is_neg())


def _calls(
    program: ExportedProgram, found: Mapping[Node, Any], known: Mapping[Kind, _Piece]
) -> Iterator[_Call]:
    """Give the calls in order, with the values of known pieces; other values are those of eager's ops."""
    values: dict[Node, Any] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            values[node] = node.meta.get("val")
        elif node.target is operator.getitem:
            values[node] = values[node.args[0]][node.args[1]]
        elif node in found:
            tensors = node.all_input_nodes
            call = _Call(node, found[node], tensors, [values[each] for each in tensors])
            yield call
            if (piece := known.get(call.kind)) is not None:
                values[node] = piece.value
            elif all(_shape(values[each]) == _shape(each.meta["val"]) for each in tensors):
                values[node] = node.meta["val"]
            else:
                args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = call.op(*args, **kwargs)
            if call.op is not node.target:
                if _shape(values[node]) != _shape(values[node.args[0]]):
                    raise TypeError(f"{node.target} gives another kind of tensor than it writes to")
                values[node.args[0]] = values[node]


def _decomposed(calls: Mapping[Kind, _Call], mode: Any, table: Table) -> dict[Kind, _Piece] | None:
    """Let torch decompose one call of each kind; None where that takes more than tensors and plain calls."""
    graph = Graph()
    names = (f"operand_{number}" for number in itertools.count())
    operands = [[graph.placeholder(next(names)) for _ in call.values] for call in calls.values()]
    results: list[list[Node]] = []
    for call, places in zip(calls.values(), operands, strict=True):
        for place, value in zip(places, call.values, strict=True):
            with mode:
                # Each has its own memory, as one tensor may be an operand of several calls.
                place.meta["val"] = torch.empty_strided(
                    value.shape, value.stride(), dtype=value.dtype, device=value.device
                )
        made = graph.node_copy(call.node, dict(zip(call.tensors, places, strict=True)).__getitem__)
        made.target = call.op
        results.append([made])
        if not isinstance(made.meta["val"], torch.Tensor):
            results[-1] = [
                graph.call_function(operator.getitem, (made, i)) for i in range(len(made.meta["val"]))
            ]
            for one, value in zip(results[-1], made.meta["val"], strict=True):
                one.meta = {**made.meta, "val": value}
    graph.output(tuple(node for some in results for node in some))
    decomposed = decompositions.decompose(_program(graph), table)
    inputs = hops.placeholders(decomposed.graph_module)
    # Sizes that depend on data have a name, which two copies must not share; bodies have an owner.
    if len(inputs) != sum(map(len, operands)) or any(
        node.op == "get_attr" or not _is_static(node.meta.get("val")) for node in decomposed.graph.nodes
    ):
        return None
    own, outputs = iter(inputs), iter(hops.output_values(decomposed.graph_module))
    return {
        kind: _piece(call, [next(own) for _ in call.values], [next(outputs) for _ in made])
        for (kind, call), made in zip(calls.items(), results, strict=True)
    }


def _piece(call: _Call, inputs: Sequence[Node], made: Sequence[Node]) -> _Piece:
    needed = dependencies(made)
    results: Any = made[0] if isinstance(call.node.meta["val"], torch.Tensor) else list(made)
    return _Piece(
        inputs=inputs,
        nodes=[node for node in made[0].graph.nodes if node in needed and node.op != "placeholder"],
        results=results,
        value=map_arg(results, lambda node: node.meta["val"]),
    )


def _program(graph: Graph) -> ExportedProgram:
    module = GraphModule({}, graph)
    inputs = [TensorArgument(name=node.name) for node in hops.placeholders(module)]
    outputs = [TensorArgument(name=node.name) for node in hops.output_values(module)]
    signature = ModuleCallSignature(
        inputs=[],
        outputs=[],
        in_spec=pytree.tree_structure((tuple(inputs), {})),
        out_spec=pytree.tree_structure(tuple(outputs)),
    )
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=ExportGraphSignature(
            input_specs=[InputSpec(InputKind.USER_INPUT, arg=each, target=None) for each in inputs],
            output_specs=[OutputSpec(OutputKind.USER_OUTPUT, arg=each, target=None) for each in outputs],
        ),
        state_dict={},
        range_constraints={},
        module_call_graph=[ModuleCallEntry(fqn="", signature=signature)],
        constants={},
    )


def _joined(
    program: ExportedProgram, found: Mapping[Node, Any], known: Mapping[Kind, _Piece]
) -> ExportedProgram:
    graph = Graph()
    calls = _calls(program, found, known)
    new: dict[Node, Any] = {}
    for node in program.graph.nodes:
        if node.op in ("placeholder", "output") or node.target is ops.ASSERT_METADATA:
            new[node] = graph.node_copy(node, new.__getitem__)
        elif node.target is operator.getitem:
            new[node] = new[node.args[0]][node.args[1]]
        else:
            call = next(calls)
            piece = known[call.kind]
            inner = dict(zip(piece.inputs, [new[each] for each in call.tensors], strict=True))
            own = {key: node.meta[key] for key in _OF_THE_CALL if key in node.meta}
            for made in piece.nodes:
                inner[made] = graph.node_copy(made, inner.__getitem__)
                inner[made].meta.update(own)
            new[node] = map_arg(piece.results, inner.__getitem__)
            if call.op is not node.target:
                new[node.args[0]] = new[node]
    graph.eliminate_dead_code()
    module = _LazyGraphModule(program.graph_module, graph)
    module.meta.update(program.graph_module.meta)
    return hops.with_graph(program, module)
