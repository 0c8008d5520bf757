"""Computes at build time what has no lowering and depends on no input.

Sines in float64 of a position table, or the factors of a weight, are the same in every call. Where an op that
the backend lacks depends on constants and on weights that no entry point writes only, `fold(program, ...)`
runs what leads to it in eager, and makes the last values that do not depend on an input constants of the
program. All else stays as it was: a compiler folds better what it can lower.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, TensorArgument
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from aotpipe.passes import hops, ops
from aotpipe.passes.decompositions.entries import static
from aotpipe.passes.rules import LegalizationRules
from aotpipe.passes.unsupported import refusal

_HELD: Final = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR})
_WRITTEN: Final = frozenset({OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION})


def fold(programs: Iterable[ExportedProgram], rules: LegalizationRules) -> list[ExportedProgram]:
    """Give the same programs with constants for such values; their graphs are changed."""
    programs = list(programs)
    written = {
        _storage(_held(program, str(spec.target)))
        for program in programs
        for spec in program.graph_signature.output_specs
        if spec.kind in _WRITTEN
    }
    return [_fold(program, rules, written) for program in programs]


def _fold(program: ExportedProgram, rules: LegalizationRules, written: Collection[int]) -> ExportedProgram:
    module = program.graph_module
    values: dict[Node, Any] = {}
    fixed: dict[Node, None] = {}
    lacking: dict[Node, None] = {}
    for node, spec in zip(hops.placeholders(module), program.graph_signature.input_specs, strict=True):
        if spec.kind in _HELD:
            tensor = _held(program, str(spec.target))
            if _storage(tensor) not in written:
                fixed[node], values[node] = None, tensor.detach()
    for node in module.graph.nodes:
        if _is_pure(node) and all(operand in fixed for operand in node.all_input_nodes):
            fixed[node] = None
            if refusal(node, rules) or any(operand in lacking for operand in node.all_input_nodes):
                lacking[node] = None
    ends = [node for node in lacking if any(user not in fixed for user in node.users)]
    if not ends or not all(isinstance(node.meta["val"], torch.Tensor) for node in ends):
        return program
    with torch.no_grad():
        return _with_constants(program, {node: _value(node, values).contiguous() for node in ends}, fixed)


def _is_pure(node: Node) -> bool:
    """Whether equal operands always give the value; it has sizes that are known."""
    if node.op != "call_function":
        return False
    if isinstance(node.target, ops.OpOverload):
        if torch.Tag.nondeterministic_seeded in node.target.tags or ops.schema(node).is_mutable:
            return False
    elif node.target is not operator.getitem:
        return False
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return bool(leaves) and all(
        isinstance(leaf, torch.Tensor) and all(map(static, leaf.shape)) for leaf in leaves
    )


def _value(node: Node, values: dict[Node, Any]) -> Any:
    """What eager gives for a node; `values` holds what is known so far, and grows."""
    waiting = [node]
    while waiting:
        last = waiting[-1]
        if missing := [operand for operand in last.all_input_nodes if operand not in values]:
            waiting += missing
            continue
        waiting.pop()
        if last not in values:
            args, kwargs = pytree.tree_map_only(Node, values.__getitem__, (last.args, last.kwargs))
            assert callable(last.target)
            values[last] = last.target(*args, **kwargs)
    return values[node]


def _with_constants(
    program: ExportedProgram, found: dict[Node, torch.Tensor], fixed: Collection[Node]
) -> ExportedProgram:
    """Put placeholders of constants in the place of nodes, and drop what led to them."""
    module = program.graph_module
    specs = list(program.graph_signature.input_specs)
    kinds = [spec.kind for spec in specs]
    at = kinds.index(InputKind.USER_INPUT) if InputKind.USER_INPUT in kinds else len(specs)
    before = [*hops.placeholders(module), _first_computed(module)][at]
    added: dict[str, torch.Tensor] = {}
    for node, value in found.items():
        name = f"folded_{len(added)}"
        with module.graph.inserting_before(before):
            place = module.graph.placeholder(f"c_{name}")
        place.meta["val"] = node.meta["val"].contiguous()
        node.replace_all_uses_with(place)
        specs.insert(at + len(added), InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(place.name), name))
        added[name] = value
    for node in reversed(list(module.graph.nodes)):
        if node in fixed and node.op == "call_function" and not node.users:
            module.graph.erase_node(node)
    return hops.with_graph(program, module, input_specs=specs, constants=added)


def _first_computed(module: GraphModule) -> Node:
    nodes: list[Node] = list(module.graph.nodes)
    return next(node for node in nodes if node.op != "placeholder")


def _held(program: ExportedProgram, target: str) -> torch.Tensor:
    held = program.state_dict.get(target)
    found = program.constants[target] if held is None else held
    assert isinstance(found, torch.Tensor), target
    return found


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() or id(tensor)
