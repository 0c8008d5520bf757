"""Constants of a program: those of its control-flow bodies, and those that are computed at build time.

`lift(program)` gives a program whose subgraphs hold no tensor attributes: a uniform constant
(`torch.tensor(2.0)` in a branch) becomes `aten.full`, any other becomes a constant of the program and a
read-only operand of each call on the way down. `detach_` and `lift_fresh_copy` in bodies, which stand around
such constants, become nothing and a clone. torch cannot functionalize a body that holds a constant
(`FunctionalTensor on its own`), so this runs before any decomposition. The program given is left as it was;
it is given back as it is when there is nothing to lift.

`fold(programs, rules)` computes at build time what depends on no input and has no lowering, or is a scan, or
what the backend would rather not compute.
Sines in float64 of a position table, or the factors of a weight, are the same in every call. Where such an op
depends on constants and on weights that no entry point writes only, what leads to it runs in eager, and the
last values that do not depend on an input become constants of the program. All else stays as it was: a
compiler folds better what it can lower.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from aotpipe.passes import hops, ops
from aotpipe.passes.decompositions.entries import static
from aotpipe.passes.emit import fake_mode
from aotpipe.passes.extract import dependencies
from aotpipe.passes.rules import LegalizationRules, refusal

_ATEN: Final = torch.ops.aten
_SCAN: Final = torch.ops.higher_order.scan
_DETACHES: Final = frozenset({_ATEN.detach_.default, _ATEN.detach.default, _ATEN.alias.default})


def lift(program: ExportedProgram) -> ExportedProgram:
    """Give the same program without tensor constants in its subgraphs."""
    bodies = list(hops.walk(program.graph_module))[1:]
    if not any(True for body in bodies for _ in _tensor_constants(body)):
        return program
    module = copy.deepcopy(program.graph_module)
    mode = fake_mode(module)
    constants = hops.Constants(program, module)
    top: dict[int, Node] = {}

    def placeholder(constant: torch.Tensor) -> Node:
        if id(constant) not in top:
            top[id(constant)] = constants.add("body_constant", constant, _fake(constant, mode))
        return top[id(constant)]

    for call in hops.calls(module):
        _lift(call, placeholder, mode)
    return constants.program()


def _tensor_constants(body: GraphModule) -> Iterator[tuple[Node, torch.Tensor]]:
    for node in body.graph.find_nodes(op="get_attr"):
        if isinstance(value := operator.attrgetter(str(node.target))(body), torch.Tensor):
            yield node, value


def _fake(constant: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    return mode.from_tensor(constant, static_shapes=True)


def _lift(call: hops.Call, outside: Callable[[torch.Tensor], Node], mode: FakeTensorMode) -> None:
    """Make operands of the constants in a call's bodies; `outside` gives a constant in the graph around."""
    bodies = call.subgraphs
    places: dict[int, list[Node]] = {}

    def inside(at: int, constant: torch.Tensor) -> Node:
        if id(constant) not in places:
            extra = call.layout.extra
            call.set_operands(extra, [*call.operands(extra), outside(constant)])
            value = _fake(constant, mode)
            places[id(constant)] = [hops.add_placeholder(body, "constant", value) for body in bodies]
        return places[id(constant)][at]

    for at, body in enumerate(bodies):
        for node, constant in list(_tensor_constants(body)):
            _strip_copies(body, node)
            uniform = hops.is_uniform(constant)
            node.replace_all_uses_with(_full(body, node, constant, mode) if uniform else inside(at, constant))
            body.graph.erase_node(node)
        for inner in hops.calls(body):
            _lift(inner, partial(inside, at), mode)
    for body in bodies:
        # A body's buffer that no node reads would be taken for a buffer of the program.
        for name in [name for name, _ in [*body.named_buffers(), *body.named_parameters()]]:
            if "." not in name:
                delattr(body, name)
        body.recompile()


def _full(body: GraphModule, node: Node, constant: torch.Tensor, mode: FakeTensorMode) -> Node:
    shape, number = list(constant.shape), constant.flatten()[0].item()
    options: Any = {"dtype": constant.dtype, "device": constant.device}
    with body.graph.inserting_before(node):
        full = body.graph.call_function(_ATEN.full.default, (shape, number), options)
    full.meta = {**node.meta, "val": _fake(constant, mode)}
    return full


def _strip_copies(body: GraphModule, node: Node) -> None:
    """Replace the copies and detaches that torch puts around a constant by one clone."""
    for user in list(node.users):
        if user.target is _ATEN.lift_fresh_copy.default:
            for detach in [use for use in user.users if use.target in _DETACHES]:
                detach.replace_all_uses_with(user)
                body.graph.erase_node(detach)
            user.target = _ATEN.clone.default


def fold(programs: Iterable[ExportedProgram], rules: LegalizationRules) -> list[ExportedProgram]:
    """Give the same programs with constants for such values; their graphs are changed."""
    programs = list(programs)
    written = {
        hops.memory(hops.held(program, str(spec.target)))
        for program in programs
        for spec in program.graph_signature.output_specs
        if spec.kind in hops.WRITTEN
    }
    return [_fold(program, rules, written) for program in programs]


def _fold(program: ExportedProgram, rules: LegalizationRules, written: Collection[int]) -> ExportedProgram:
    module = program.graph_module
    values: dict[Node, Any] = {}
    fixed: dict[Node, None] = {}
    lacking: dict[Node, None] = {}
    for node, spec in zip(hops.placeholders(module), program.graph_signature.input_specs, strict=True):
        if spec.kind in hops.HELD:
            tensor = hops.held(program, str(spec.target))
            if hops.memory(tensor) not in written:
                fixed[node], values[node] = None, tensor.detach()
    for node in module.graph.nodes:
        if node.op == "get_attr":
            fixed[node], values[node] = None, getattr(module, str(node.target))
        if _is_pure(node) and all(operand in fixed for operand in node.all_input_nodes):
            fixed[node] = None
            if (
                node.target is _SCAN
                or rules.folds(node)
                or refusal(node, rules)
                or any(operand in lacking for operand in node.all_input_nodes)
            ):
                lacking[node] = None
    ends = [node for node in lacking if any(user not in fixed for user in node.users)]
    if not ends or not all(isinstance(node.meta["val"], torch.Tensor) for node in ends):
        return program
    constants = hops.Constants(program, module)
    with torch.no_grad():
        _evaluate(module, ends, values)
        for node in ends:
            value = values[node].contiguous()
            node.replace_all_uses_with(constants.add("folded", value, node.meta["val"].contiguous()))
    for node in reversed(list(module.graph.nodes)):
        if node in fixed and node.op == "call_function" and not node.users:
            module.graph.erase_node(node)
    return constants.program()


def _is_pure(node: Node) -> bool:
    """Whether equal operands always give the value; it has sizes that are known."""
    if node.op != "call_function":
        return False
    if isinstance(node.target, ops.OpOverload):
        if torch.Tag.nondeterministic_seeded in node.target.tags or ops.schema(node).is_mutable:
            return False
    elif node.target is _SCAN:
        (body,) = hops.call_of(node).subgraphs
        if not all(each.op != "call_function" or _is_pure(each) for each in body.graph.nodes):
            return False
    elif node.target is not operator.getitem:
        return False
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return bool(leaves) and all(
        isinstance(leaf, torch.Tensor) and all(map(static, leaf.shape)) for leaf in leaves
    )


def _evaluate(module: GraphModule, ends: Sequence[Node], values: dict[Node, Any]) -> None:
    """Run in eager what leads to some nodes; `values` holds what is known, and grows."""
    needed = dependencies(ends)
    for node in module.graph.nodes:
        if node in needed and node not in values:
            args, kwargs = pytree.tree_map_only(Node, values.__getitem__, (node.args, node.kwargs))
            values[node] = node.target(*args, **kwargs)
