"""From a decomposed ExportedProgram to a pure function: weights, state and inputs in, outputs and state out.

`Tensors` names every tensor of the model once over all entry points: two parameters of one storage share the
name that was met first. `flatten(entry, program, tensors, state)` gives a `LegalEntry` without asserts whose
graph has flat placeholders (weights, state, inputs) and returns a flat tuple (outputs, `mutated.<input>` for
inputs that the model writes to, next states). Numbers that go in or out have become 0-d tensors. A state that
the entry point reads and does not write is returned as it came.

The program's graph is taken over: it must not be used again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule

from aotpipe.core.signature import Constant, TensorSpec
from aotpipe.core.stages import ExportedEntry, LegalEntry
from aotpipe.errors import ExportFailed, LowerFailed
from aotpipe.passes import hops, scalars
from aotpipe.passes.emit import Emitter
from aotpipe.passes.source_lines import nearest_line

_ATEN: Final = torch.ops.aten
FOLDED_ELEMENTS: Final = 64
"""A constant of at most so many equal elements is written as `full`, where a compiler can fold it."""


@dataclass(slots=True)
class Tensors:
    """The tensors that the entry points hold, each under one name.

    Attributes:
        by_name: Contiguous CPU tensors, detached, by name.
    """

    by_name: dict[str, torch.Tensor] = field(default_factory=dict)
    _names: dict[tuple[object, ...], str] = field(default_factory=dict)
    # Keeps the storages alive, so that an address is never that of another tensor.
    _alive: list[torch.Tensor] = field(default_factory=list)

    def name(self, fqn: str, tensor: torch.Tensor, entry_point: str) -> str:
        """The name of a tensor, new or known.

        `entry_point` tells apart constants that torch numbered alike in two entry points.
        """
        identity = _identity(tensor)
        if identity not in self._names:
            name = fqn if fqn not in self.by_name else f"{entry_point}.{fqn}"
            self._alive.append(tensor)
            self._names[identity] = name
            self.by_name[name] = tensor.detach().cpu().contiguous()
        return self._names[identity]


def _foreign(entry_point: str, found: object, placeholder: Node) -> ExportFailed:
    """The refusal of an object of torch's own that a graph was given."""
    kind = type(found).__name__
    hint = "make the object where the model is made, and keep its tensors"
    if isinstance(found, torch.Generator):
        hint = "draw without `generator=` and build with --random state, or pass the numbers as an input"
    where = next((line for user in placeholder.users if (line := nearest_line(user))), None)
    return ExportFailed(
        f"{entry_point} uses a torch {kind}, which no program can hold", hint=hint, where=where
    )


def _identity(tensor: torch.Tensor) -> tuple[object, ...]:
    return (hops.memory(tensor), tensor.storage_offset(), tensor.dtype, tuple(tensor.shape), tensor.stride())


def written_state(program: ExportedProgram, tensors: Tensors, entry_point: str) -> list[str]:
    """The names of the tensors that a decomposed program writes to, in the order of its signature."""
    written = {str(spec.target) for spec in program.graph_signature.output_specs if spec.kind in hops.WRITTEN}
    held = [str(spec.target) for spec in program.graph_signature.input_specs if spec.kind in hops.HELD]
    return [tensors.name(each, hops.held(program, each), entry_point) for each in held if each in written]


def flatten(
    entry: ExportedEntry,
    program: ExportedProgram,
    input_names: Sequence[str],
    tensors: Tensors,
    state: Collection[str],
) -> LegalEntry:
    """Give the entry point as a pure function.

    `tensors` grows by what the entry point holds; `state` are the names that any entry point writes to.

    Raises:
        LowerFailed: The program takes or gives something that has no tensor form.
    """
    module = program.graph_module
    inputs = _Inputs(entry, program, input_names, tensors, state)
    outputs = _Outputs(entry, program, inputs)
    module.graph.output_node().args = ((*outputs.results, *outputs.mutated, *outputs.next_states),)
    _order(module, [*inputs.weights, *inputs.states, *inputs.users])
    module.graph.lint()
    return LegalEntry(
        name=entry.name,
        # Each pass that follows changes the graph; its Python code is written once, when it is called.
        graph=_LazyGraphModule(module, module.graph),
        weights=tuple(inputs.weights.values()),
        signature=replace(
            entry.signature,
            outputs=(*outputs.specs, *outputs.mutated_specs),
            state=tuple(state_spec(name, tensors.by_name[name]) for name in inputs.states.values()),
            kept_on_raise=tuple(
                name
                for node, name in inputs.states.items()
                if any(inputs.by_target.get(each) is node for each in entry.signature.kept_on_raise)
            ),
        ),
        range_constraints=dict(program.range_constraints),
    )


class _Inputs:
    """The placeholders by what they hold.

    Attributes:
        weights, states: Placeholder -> name of the tensor, each tensor once.
        users: Placeholder -> its spec.
        by_target: FQN of a held tensor -> its placeholder.
        by_node_name: Name of an input in the graph -> its placeholder.
    """

    def __init__(
        self,
        entry: ExportedEntry,
        program: ExportedProgram,
        input_names: Sequence[str],
        tensors: Tensors,
        state: Collection[str],
    ) -> None:
        self.weights: dict[Node, str] = {}
        self.states: dict[Node, str] = {}
        self.users: dict[Node, TensorSpec] = {}
        self.by_target: dict[str, Node] = {}
        self.by_node_name: dict[str, Node] = {}
        self._module = program.graph_module
        first_of: dict[str, Node] = {}
        specs = program.graph_signature.input_specs
        leaves = {leaf.name: leaf for leaf in entry.signature.inputs}
        names = iter(input_names)
        foldable: dict[str, torch.Tensor] = {}
        for node, spec in zip(hops.placeholders(self._module), specs, strict=True):
            if spec.kind in hops.HELD:
                target = str(spec.target)
                tensor = hops.held(program, target)
                if tensor.layout is not torch.strided:
                    self._leave_out(node, target, entry)
                    continue
                name = tensors.name(target, tensor, entry.name)
                # One placeholder serves all names of a tensor.
                self.by_target[target] = first = first_of.setdefault(name, node)
                if first is not node:
                    node.replace_all_uses_with(first)
                    self._module.graph.erase_node(node)
                is_small = tensor.numel() <= FOLDED_ELEMENTS
                # Complex values are parts by now, and compilers have no complex numbers.
                is_small &= not tensor.is_complex()
                if spec.kind is InputKind.CONSTANT_TENSOR and is_small and hops.is_uniform(tensor):
                    foldable[name] = tensor
            elif spec.kind is InputKind.USER_INPUT:
                self._take(node, leaves[next(names)], entry)
            elif spec.kind is InputKind.CUSTOM_OBJ:
                raise _foreign(entry.name, program.constants.get(str(spec.target)), node)
            else:
                raise LowerFailed(f"{entry.name} takes a {spec.kind.name.lower()}, which is no tensor")
        for name, node in first_of.items():
            if name in state:
                self.states[node] = name
            elif node.users and name not in foldable:
                self.weights[node] = name
            else:
                if node.users:
                    tensor, emit = foldable[name], Emitter(self._module, hops.first_computed(self._module))
                    shape, number = list(tensor.shape), tensor.flatten()[0].item()
                    node.replace_all_uses_with(emit(_ATEN.full.default, shape, number, dtype=tensor.dtype))
                self._module.graph.erase_node(node)

    def _leave_out(self, node: Node, target: str, entry: ExportedEntry) -> None:
        """Drop a sparse tensor that the model holds and does not use."""
        if node.users:
            raise LowerFailed(
                f"{entry.name} uses `{target}`, which is sparse",
                hint=f"make it dense when the model is made: `{target}.to_dense()`",
            )
        self._module.graph.erase_node(node)

    def _take(self, node: Node, leaf: TensorSpec | Constant, entry: ExportedEntry) -> None:
        self.by_node_name[node.name] = node
        if isinstance(leaf, Constant):
            if node.users:
                raise LowerFailed(f"{entry.name} reads its fixed input {leaf.name}")
            self._module.graph.erase_node(node)
            return
        if not isinstance(node.meta["val"], torch.Tensor):
            scalars.open_input(self._module, node)
        self.users[node] = leaf


class _Outputs:
    """The values that the graph returns: results, then mutated inputs; and the next state of each state."""

    def __init__(self, entry: ExportedEntry, program: ExportedProgram, inputs: _Inputs) -> None:
        self.results: list[Node] = []
        self.specs: list[TensorSpec | Constant] = []
        self.mutated: list[Node] = []
        self.mutated_specs: list[TensorSpec] = []
        self._module = program.graph_module
        self._emit = Emitter(self._module, self._module.graph.output_node())
        written: dict[Node, Node] = {}
        leaves = iter(entry.signature.outputs)
        values = hops.output_values(self._module)
        for value, spec in zip(values, program.graph_signature.output_specs, strict=True):
            if spec.kind in hops.WRITTEN:
                written[inputs.by_target[str(spec.target)]] = value
            elif spec.kind is OutputKind.USER_INPUT_MUTATION:
                leaf = inputs.users[inputs.by_node_name[str(spec.target)]]
                self.mutated.append(value)
                self.mutated_specs.append(replace(leaf, name=f"mutated.{leaf.name}", value_range=None))
            elif spec.kind is OutputKind.USER_OUTPUT:
                self._give(value, next(leaves), entry)
            else:
                raise LowerFailed(f"{entry.name} gives a {spec.kind.name.lower()}, which is no tensor")
        self.next_states = [written.get(node, node) for node in inputs.states]

    def _give(self, value: Any, leaf: TensorSpec | Constant, entry: ExportedEntry) -> None:
        self.specs.append(leaf)
        if isinstance(leaf, Constant):
            if isinstance(value, Node):
                raise LowerFailed(f"{entry.name} computes its fixed output {leaf.name}")
            return
        if not isinstance(scalars.value_of(value), torch.Tensor):
            value = scalars.as_tensor(self._emit, value, getattr(torch, leaf.dtype))
        self.results.append(value)


def state_spec(name: str, tensor: torch.Tensor) -> TensorSpec:
    """The leaf of a signature that a tensor of the state is."""
    return TensorSpec(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def _order(module: GraphModule, placeholders: Sequence[Node]) -> None:
    first = next(iter(module.graph.nodes))
    for node in placeholders:
        if node is first:
            first = first.next
        else:
            first.prepend(node)
