"""A program with each kind of call once: as hard to legalize as the whole, and much smaller.

A network repeats its layers, and whether an op can be lowered follows from the op and what it is given:
shapes, dtypes, strides, numbers. `deduplicated(entry)` gives the entry point with the result of the first
call of its kind in the place of each later one. What such a program computes is of no use. Results that
nothing reads any more are outputs of it, so that what gave them is not dropped.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Hashable
from dataclasses import replace
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree  # torch.export's own flattening; see canonicalize.pytrees

from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.core.stages import ExportedEntry
from aotpipe.passes import hops, ops

_LEFT: Final = "left."
_FEWEST: Final = 48
"""Calls below which a program is legalized as it is."""


def deduplicated(entry: ExportedEntry) -> ExportedEntry | None:
    """The entry point with each kind of call once; None where that is little less, or not sure."""
    program = entry.program
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    if len(calls) < _FEWEST or not all(map(_is_known, calls)):
        return None
    module = copy.deepcopy(program.graph_module)
    inputs = set(program.graph_signature.user_inputs)
    left = _merge(module, inputs)
    if len(module.graph.nodes) > 0.8 * len(program.graph.nodes):
        return None
    extra = tuple(_left(at, node) for at, node in enumerate(left))
    signature = replace(entry.signature, outputs=(*entry.signature.outputs, *extra))
    return replace(entry, program=_giving(program, module, left), signature=signature)


def without_extras(signature: Signature) -> Signature:
    """A signature without the outputs that `deduplicated` added."""
    kept = tuple(each for each in signature.outputs if not each.name.startswith(_LEFT))
    return replace(signature, outputs=kept)


def _left(at: int, node: Node) -> TensorSpec:
    dtype = str(node.meta["val"].dtype).removeprefix("torch.")
    return TensorSpec(f"{_LEFT}{at}", dtype, (0,) * node.meta["val"].dim())


def _is_known(node: Node) -> bool:
    """Whether a call is no branch or loop, and leaves the form of what it was given."""
    if isinstance(node.target, ops.HigherOrderOperator):
        return False
    return not isinstance(node.target, ops.OpOverload) or torch.Tag.inplace_view not in node.target.tags


def _merge(module: GraphModule, inputs: Collection[str]) -> list[Node]:
    """Replace each call by the first of its kind; gives the tensors that nothing reads any more."""
    first: dict[Hashable, Node] = {}
    lost: dict[Node, None] = {}
    # Whose memory is the model's or the caller's, and what follows from the model's tensors alone.
    outer: set[Node] = set()
    held: set[Node] = set()
    for node in list(module.graph.nodes):
        if node.op in ("placeholder", "get_attr"):
            outer.add(node)
            if node.op == "get_attr" or node.target not in inputs:
                held.add(node)
        if node.op != "call_function":
            continue
        if all(each in held for each in node.all_input_nodes):
            held.add(node)
        shares = _shares(node)
        if shares and any(each in outer for each in node.all_input_nodes):
            outer.add(node)
        kind = None if shares and node in outer and _writes(node) else _kind(node, held)
        known = node if kind is None else first.setdefault(kind, node)
        if known is not node:
            operands = node.all_input_nodes
            node.replace_all_uses_with(known, propagate_meta=False)
            module.graph.erase_node(node)
            lost.update(dict.fromkeys(each for each in operands if each.op == "call_function"))
    return [each for each in lost if not each.users and isinstance(each.meta.get("val"), torch.Tensor)]


def _shares(node: Node) -> bool:
    """Whether a call gives memory that it was given, or writes into it."""
    schema = ops.schema(node)
    if schema is None:
        return True
    return schema.is_mutable or any(each.alias_info is not None for each in schema.returns)


def _writes(node: Node) -> bool:
    schema = ops.schema(node)
    return schema is not None and bool(schema.is_mutable)


def _kind(node: Node, held: Collection[Node]) -> Hashable | None:
    """What a call is and is given; None for a function of Python, which computes with sizes."""
    target: Any = node.target
    if not isinstance(target, ops.OpOverload) and not isinstance(node.args[0], Node):
        return None
    leaves, form = pytree.tree_flatten((list(node.args), dict(node.kwargs)))
    if not isinstance(target, ops.OpOverload):
        # A part of a result: of the same one.
        return (target, *(each if isinstance(each, Node) else repr(each) for each in leaves))
    operands = list(dict.fromkeys(each for each in leaves if isinstance(each, Node)))
    given = tuple(
        (operands.index(each), each in held, _form(each.meta.get("val")))
        if isinstance(each, Node)
        else (type(each), repr(each))
        for each in leaves
    )
    return (target, given, str(form), _form(node.meta.get("val")))


def _form(value: Any) -> Hashable:
    if isinstance(value, torch.Tensor):
        sizes = (*map(str, value.shape), "by", *map(str, value.stride()))
        return (value.dtype, value.device, value.layout, sizes)
    if isinstance(value, tuple | list):
        return tuple(map(_form, value))
    return str(value)


def _giving(program: ExportedProgram, module: GraphModule, left: list[Node]) -> ExportedProgram:
    """The program over another graph, which gives some results more."""
    output = module.graph.output_node()
    output.args = ((*hops.output_values(module), *left),)
    arguments = [TensorArgument(name=node.name) for node in left]
    signature = program.graph_signature
    specs = [OutputSpec(OutputKind.USER_OUTPUT, each, None) for each in arguments]
    signature = replace(signature, output_specs=[*signature.output_specs, *specs])
    count = sum(spec.kind is OutputKind.USER_OUTPUT for spec in signature.output_specs)
    root, *rest = program.module_call_graph
    assert root.signature is not None
    called = replace(
        root.signature,
        outputs=[*root.signature.outputs, *arguments],
        out_spec=pytree.tree_structure(tuple(range(count))),
    )
    widened = copy.copy(program)
    widened._graph_signature = signature  # noqa: SLF001  # public ways of making one check it against its graph
    widened._module_call_graph = [replace(root, signature=called), *rest]  # noqa: SLF001
    return hops.with_graph(widened, module)
