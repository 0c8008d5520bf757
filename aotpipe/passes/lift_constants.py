"""Lifts tensor constants out of control-flow bodies.

`lift(program)` takes an ExportedProgram and gives one whose subgraphs hold no tensor attributes: a uniform
constant (`torch.tensor(2.0)` in a branch) becomes `aten.full`, any other becomes a constant of the program
and a read-only operand of each call on the way down. `detach_` and `lift_fresh_copy` in bodies, which stand
around such constants, become nothing and a clone. torch cannot functionalize a body that holds a constant
(`FunctionalTensor on its own`), so this runs before any decomposition. The program given is left as it was;
it is given back as it is when there is nothing to lift.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Final

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import GraphModule, Node

from aotpipe.passes import hops
from aotpipe.passes.emit import fake_mode

_ATEN: Final = torch.ops.aten
_DETACHES: Final = frozenset({_ATEN.detach_.default, _ATEN.detach.default, _ATEN.alias.default})


def lift(program: ExportedProgram) -> ExportedProgram:
    """Give the same program without tensor constants in its subgraphs."""
    bodies = list(hops.walk(program.graph_module))[1:]
    if not any(True for body in bodies for _ in _tensor_constants(body)):
        return program
    module = copy.deepcopy(program.graph_module)
    lifted = _Lifted(module, program)
    for call in hops.calls(module):
        lifted.out_of(call)
    return lifted.program()


def _tensor_constants(body: GraphModule) -> Iterator[tuple[Node, torch.Tensor]]:
    for node in body.graph.find_nodes(op="get_attr"):
        value: object = body
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if isinstance(value, torch.Tensor):
            yield node, value


class _Lifted:
    """The constants found so far, by identity, each with its placeholder in the top graph."""

    def __init__(self, module: GraphModule, program: ExportedProgram) -> None:
        self._module = module
        self._source = program
        self._mode = fake_mode(module)
        self._top: dict[int, Node] = {}
        self._found: list[tuple[Node, torch.Tensor, str]] = []
        specs = program.graph_signature.input_specs
        kinds = [spec.kind for spec in specs]
        self._at = kinds.index(InputKind.USER_INPUT) if InputKind.USER_INPUT in kinds else len(specs)

    def out_of(self, call: hops.Call) -> None:
        """Lift what the bodies of a top-level call hold."""
        for constant in self._clear(call):
            call.set_operands(
                call.layout.extra, [*call.operands(call.layout.extra), self._placeholder(constant)]
            )

    def _clear(self, call: hops.Call) -> list[torch.Tensor]:
        """Take the constants out of a call's bodies and give them in the order of their new placeholders."""
        needed: dict[int, torch.Tensor] = {}
        users: list[dict[int, list[Node]]] = []
        for body in call.subgraphs:
            nodes: dict[int, list[Node]] = {}
            for node, value in self._own_constants(body):
                needed.setdefault(id(value), value)
                nodes.setdefault(id(value), []).append(node)
            users.append(nodes)
        # Inner calls come after: each of theirs becomes a need of this body too.
        inner = [(body, inner, self._clear(inner)) for body in call.subgraphs for inner in hops.calls(body)]
        for _, _, constants in inner:
            needed.update((id(constant), constant) for constant in constants)
        places: dict[tuple[int, int], Node] = {}
        for body, nodes in zip(call.subgraphs, users, strict=True):
            for key, value in needed.items():
                place = hops.add_placeholder(
                    body, "constant", self._mode.from_tensor(value, static_shapes=True)
                )
                places[id(body), key] = place
                for node in nodes.get(key, ()):
                    node.replace_all_uses_with(place)
                    body.graph.erase_node(node)
        for body, inner_call, constants in inner:
            extra = inner_call.layout.extra
            added = [places[id(body), id(constant)] for constant in constants]
            inner_call.set_operands(extra, [*inner_call.operands(extra), *added])
        for body in call.subgraphs:
            # A body's buffer that no node reads would be taken for a buffer of the program.
            for name in [name for name, _ in [*body.named_buffers(), *body.named_parameters()]]:
                if "." not in name:
                    delattr(body, name)
            body.recompile()
        return list(needed.values())

    def _own_constants(self, body: GraphModule) -> Iterator[tuple[Node, torch.Tensor]]:
        """The constants of one body that need lifting; uniform ones are written as `full` on the way."""
        for node, value in list(_tensor_constants(body)):
            _strip_copies(body, node)
            if _is_uniform(value):
                with body.graph.inserting_before(node):
                    full = body.graph.call_function(
                        _ATEN.full.default,
                        (list(value.shape), value.flatten()[0].item()),
                        {"dtype": value.dtype, "device": value.device},
                    )
                full.meta = dict(node.meta) | {"val": self._mode.from_tensor(value, static_shapes=True)}
                node.replace_all_uses_with(full)
                body.graph.erase_node(node)
            else:
                yield node, value

    def _placeholder(self, constant: torch.Tensor) -> Node:
        if id(constant) not in self._top:
            # Every new placeholder goes before the old ones from `_at` on, so behind the new ones so far.
            inputs = [node for node in hops.placeholders(self._module) if node not in self._top.values()]
            old = inputs[self._at] if self._at < len(inputs) else _first_computed(self._module)
            name = f"c_body_constant_{len(self._found)}"
            with self._module.graph.inserting_before(old):
                node = self._module.graph.placeholder(name)
            node.meta["val"] = self._mode.from_tensor(constant, static_shapes=True)
            self._top[id(constant)] = node
            self._found.append((node, constant, name.removeprefix("c_")))
        return self._top[id(constant)]

    def program(self) -> ExportedProgram:
        """The program over the changed graph."""
        source = self._source
        specs = list(source.graph_signature.input_specs)
        specs[self._at : self._at] = [
            InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), fqn)
            for node, _, fqn in self._found
        ]
        return hops.with_graph(
            source,
            self._module,
            input_specs=specs,
            constants={fqn: value for _, value, fqn in self._found},
        )


def _first_computed(module: GraphModule) -> Node:
    nodes: list[Node] = list(module.graph.nodes)
    return next(node for node in nodes if node.op != "placeholder")


def _is_uniform(value: torch.Tensor) -> bool:
    return value.numel() > 0 and bool((value == value.flatten()[0]).all())


def _strip_copies(body: GraphModule, node: Node) -> None:
    """Replace the copies and detaches that torch puts around a constant by one clone."""
    for user in list(node.users):
        if user.target is _ATEN.lift_fresh_copy.default:
            for detach in [use for use in user.users if use.target in _DETACHES]:
                detach.replace_all_uses_with(user)
                body.graph.erase_node(detach)
            user.target = _ATEN.clone.default
