"""The shape of each control-flow op: where its subgraphs and its read-only operands stand.

`calls(graph_module)` gives every call of such an op as a `Call`, with its subgraphs as modules; `walk` gives
a graph and all subgraphs under it. Placeholders of a subgraph always end with the read-only operands, so
that an operand appended to a call is a placeholder appended to each of its subgraphs. `with_graph` and
`Constants` give an exported program over a changed graph.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, TensorArgument
from torch.fx import GraphModule, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Argument positions: the subgraphs', the operand lists' in the order of a subgraph's placeholders.

    The last operand list is the read-only one. `carried` says how many of the lists a trip of the op passes
    on to the next; `sliced` names the list whose tensors a trip reads one slice of.
    """

    subgraphs: tuple[int, ...]
    operands: tuple[int, ...]
    carried: int | None = None
    sliced: int | None = None

    @property
    def extra(self) -> int:
        """The position of the read-only operands."""
        return self.operands[-1]


_HOP: Final = torch.ops.higher_order
LAYOUTS: Final[Mapping[object, Layout]] = {
    _HOP.cond: Layout(subgraphs=(1, 2), operands=(3,)),
    _HOP.while_loop: Layout(subgraphs=(0, 1), operands=(2, 3), carried=2),
    _HOP.map_impl: Layout(subgraphs=(0,), operands=(1, 2), sliced=1),
    _HOP.scan: Layout(subgraphs=(0,), operands=(1, 2, 3), carried=1, sliced=2),
    _HOP.associative_scan: Layout(subgraphs=(0,), operands=(1, 2), sliced=1),
}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a control-flow op in the graph of `owner`."""

    owner: GraphModule
    node: Node
    layout: Layout

    @property
    def is_cond(self) -> bool:
        """Whether it is a `torch.cond`."""
        return self.node.target is _HOP.cond

    @property
    def is_while(self) -> bool:
        """Whether it is a `while_loop`."""
        return self.node.target is _HOP.while_loop

    @property
    def subgraphs(self) -> tuple[GraphModule, ...]:
        """The modules it may run, in the order of its arguments."""
        return tuple(subgraph(self.owner, self.node.args[index]) for index in self.layout.subgraphs)

    def operands(self, position: int) -> list[Any]:
        """The operands of one list."""
        found = self.node.args[position] if position < len(self.node.args) else ()
        assert isinstance(found, Sequence), found
        return list(found)

    def set_operands(self, position: int, operands: Sequence[Any]) -> None:
        """Replace one operand list, keeping its kind of sequence."""
        args: list[Any] = list(self.node.args)
        args += [()] * (position + 1 - len(args))
        args[position] = type(args[position])(operands)
        self.node.args = tuple(args)

    @property
    def all_operands(self) -> list[Any]:
        """All operands, in the order of a subgraph's placeholders (a scan over pairs apart)."""
        return [operand for position in self.layout.operands for operand in self.operands(position)]

    def read_only(self, body: GraphModule) -> list[tuple[Node, Any]]:
        """The placeholders of a subgraph that read-only operands are passed to, each with its operand."""
        operands = self.operands(self.layout.extra)
        inputs = placeholders(body)
        return list(zip(inputs[len(inputs) - len(operands) :], operands, strict=True))

    @property
    def results(self) -> list[Node]:
        """The `getitem` nodes that take its results."""
        return [user for user in self.node.users if user.target is operator.getitem]


def calls(module: GraphModule) -> Iterator[Call]:
    """Every control-flow call of one graph, in order, without those of its subgraphs."""
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target in LAYOUTS:
            yield Call(module, node, LAYOUTS[node.target])


def call_of(node: Node) -> Call:
    """The call that a node of a control-flow op is."""
    owner = node.graph.owning_module
    assert isinstance(owner, GraphModule)
    return Call(owner, node, LAYOUTS[node.target])


def walk(module: GraphModule) -> Iterator[GraphModule]:
    """The graph itself, then the subgraphs of its calls, depth first, each once."""
    seen: set[int] = set()

    def visit(module: GraphModule) -> Iterator[GraphModule]:
        if id(module) not in seen:
            seen.add(id(module))
            yield module
            for call in calls(module):
                for subgraph in call.subgraphs:
                    yield from visit(subgraph)

    yield from visit(module)


def placeholders(module: GraphModule) -> list[Node]:
    """The inputs of a graph, in order."""
    return module.graph.find_nodes(op="placeholder")


def output_values(module: GraphModule) -> list[Any]:
    """The values that a graph returns; a single one counts as a list of one."""
    returned = module.graph.output_node().args[0]
    return list(returned) if isinstance(returned, tuple | list) else [returned]


def set_output_values(module: GraphModule, values: Sequence[Any]) -> None:
    """Return these values instead, as the same kind of thing: a list, a tuple, or a single value."""
    output = module.graph.output_node()
    returned = output.args[0]
    output.args = (type(returned)(values) if isinstance(returned, tuple | list) else values[0],)


def add_placeholder(module: GraphModule, name: str, value: object, index: int | None = None) -> Node:
    """Add an input to a graph, at an index or at the end."""
    before = [*placeholders(module), first_computed(module)][-1 if index is None else index]
    with module.graph.inserting_before(before):
        node = module.graph.placeholder(name)
    # A placeholder's target is the parameter's name in the generated code, which must be unique too.
    node.target = node.name
    node.meta["val"] = value
    return node


def drop_unused_subgraphs(module: GraphModule) -> None:
    """Remove the submodules that the graph of a module does not name."""
    named = {str(node.target).split(".")[0] for node in module.graph.find_nodes(op="get_attr")}
    for name in [name for name, _ in module.named_children() if name not in named]:
        delattr(module, name)


def with_graph(
    program: ExportedProgram,
    module: GraphModule,
    *,
    input_specs: Sequence[InputSpec] | None = None,
    constants: Mapping[str, torch.Tensor] | None = None,
    state_dict: Mapping[str, torch.Tensor] | None = None,
) -> ExportedProgram:
    """The same program over another graph, with other input specs, tensors and more constants where given."""
    signature = program.graph_signature
    specs = [
        # A copy of a graph renames a placeholder that has the name of a Python function.
        replace(spec, arg=replace(spec.arg, name=node.name))
        for node, spec in zip(
            placeholders(module), signature.input_specs if input_specs is None else input_specs, strict=True
        )
    ]
    outputs = [
        # Another node may give the output now.
        replace(spec, arg=replace(spec.arg, name=value.name)) if isinstance(value, Node) else spec
        for spec, value in zip(signature.output_specs, output_values(module), strict=True)
    ]
    signature = replace(signature, input_specs=specs, output_specs=outputs)
    module.graph.lint()
    module.recompile()
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=signature,
        state_dict=program.state_dict if state_dict is None else dict(state_dict),
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants={**program.constants, **(constants or {})},
        verifiers=program.verifiers,
    )


HELD: Final = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR})
WRITTEN: Final = frozenset({OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION})


def held(program: ExportedProgram, target: str) -> torch.Tensor:
    """The parameter, buffer or constant of a program that a spec names."""
    found = program.state_dict.get(target)
    found = program.constants[target] if found is None else found
    assert isinstance(found, torch.Tensor), target
    return found


def memory(tensor: torch.Tensor) -> int:
    """A key of a tensor's memory, unique among tensors that are alive."""
    # A sparse tensor, which a model may hold and not use, has no storage.
    return (tensor.layout is torch.strided and tensor.untyped_storage().data_ptr()) or id(tensor)


def first_computed(module: GraphModule) -> Node:
    """The first node of a graph that is no placeholder."""
    nodes: list[Node] = list(module.graph.nodes)
    return next(node for node in nodes if node.op != "placeholder")


def is_uniform(tensor: torch.Tensor) -> bool:
    """Whether a tensor has elements, and all are the same number: 0.0 and -0.0 are two."""
    if not tensor.numel() or not bool((tensor == tensor.flatten()[0]).all()):
        return False
    parts = torch.view_as_real(tensor) if tensor.is_complex() else tensor[..., None]
    if not parts.is_floating_point():
        return True
    signs = parts.double().signbit().reshape(-1, parts.shape[-1])
    return bool((signs == signs[0]).all())


class Constants:
    """Gives a program more constants, each a placeholder before those of its inputs.

    The program stays as it was; `module`, the graph that it gets, is changed.
    """

    def __init__(self, program: ExportedProgram, module: GraphModule) -> None:
        self._program, self._module = program, module
        self._specs = list(program.graph_signature.input_specs)
        kinds = [spec.kind for spec in self._specs]
        self._at = kinds.index(InputKind.USER_INPUT) if InputKind.USER_INPUT in kinds else len(kinds)
        self._before = [*placeholders(module), first_computed(module)][self._at]
        self._tensors: dict[str, torch.Tensor] = {}

    def add(self, prefix: str, tensor: torch.Tensor, value: torch.Tensor) -> Node:
        """Add a constant, named by a prefix and a number, whose placeholder has a fake value."""
        name = f"{prefix}_{len(self._tensors)}"
        with self._module.graph.inserting_before(self._before):
            node = self._module.graph.placeholder(f"c_{name}")
        node.meta["val"] = value
        spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), name)
        self._specs.insert(self._at + len(self._tensors), spec)
        self._tensors[name] = tensor
        return node

    def program(self) -> ExportedProgram:
        """The program over the changed graph."""
        return with_graph(self._program, self._module, input_specs=self._specs, constants=self._tensors)


def subgraph(owner: GraphModule, reference: Any) -> GraphModule:
    """The module that a `get_attr` node of a graph names."""
    assert isinstance(reference, Node), reference
    found = owner.get_submodule(str(reference.target))
    assert isinstance(found, GraphModule), found
    return found
