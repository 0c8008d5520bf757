"""Checks that an entry keeps what `stages.LegalEntry` promises.

`verify(entry, weights, state)` raises `LowerFailed` with the first broken promise; it runs on every entry
that the legalizer gives, since what comes after trusts these promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from aotpipe.core.signature import TensorSpec, dim_symbols, evaluate_dim
from aotpipe.core.stages import LegalEntry
from aotpipe.errors import LowerFailed
from aotpipe.passes import hops, ops
from aotpipe.passes.scalars import value_of
from aotpipe.passes.source_lines import nearest_line

Tensors = Mapping[str, torch.Tensor]
Broken = Iterator[tuple[str, Node | None]]
"""A sentence for each broken promise, and the node that breaks it."""


def verify(entry: LegalEntry, weights: Tensors, state: Tensors) -> None:
    """Check an entry.

    Raises:
        LowerFailed: A promise is broken; that is a fault of aotpipe, not of the model.
    """
    for message, node in _broken(entry, weights, state):
        raise LowerFailed(
            f"the legal program of {entry.name} is not legal: {message}",
            hint="please report it with the model: it is a fault of aotpipe",
            where=nearest_line(node) if node is not None else None,
        )


def _broken(entry: LegalEntry, weights: Tensors, state: Tensors) -> Broken:
    yield from _broken_inputs(entry, weights, state)
    yield from _broken_outputs(entry)
    for module in hops.walk(entry.graph):
        yield from _broken_nodes(module)
        for call in hops.calls(module):
            yield from _broken_call(call)


def _broken_inputs(entry: LegalEntry, weights: Tensors, state: Tensors) -> Broken:
    signature = entry.signature
    nodes = hops.placeholders(entry.graph)
    wanted = [_of_tensor(key, weights) for key in entry.weights]
    wanted += [_of_tensor(spec.name, state) for spec in signature.state]
    wanted += [_of_spec(spec) for spec in signature.tensor_inputs]
    if len(nodes) != len(wanted):
        yield f"{len(nodes)} placeholders for {len(wanted)} weights, states and inputs", None
        return
    for node, kind in zip(nodes, wanted, strict=True):
        if _of_value(node.meta.get("val")) != kind:
            yield f"{node.name} is {_of_value(node.meta.get('val'))}, not {kind}", node
            return
    given = (*signature.state, *signature.tensor_inputs)
    numbers = {symbol.name: symbol.min for symbol in signature.symbols if symbol.min == symbol.max}
    for node, spec in zip(nodes[len(entry.weights) :], given, strict=True):
        for dim, size in zip(spec.dims, node.meta["val"].shape, strict=True):
            if not isinstance(dim, str) or not isinstance(size, int):
                continue
            if not dim_symbols(dim) <= numbers.keys() or evaluate_dim(dim, numbers) != size:
                yield f"{node.name} is of size {size} where {dim} varies", node


def _broken_outputs(entry: LegalEntry) -> Broken:
    wanted = [_of_spec(spec) for spec in (*entry.signature.tensor_outputs, *entry.signature.state)]
    wanted += ["bool of rank 0"] * len(entry.asserts)
    returned = entry.graph.graph.output_node().args[0]
    if not isinstance(returned, tuple):
        yield f"it returns a {type(returned).__name__}, not a tuple", None
        return
    if len(returned) != len(wanted):
        yield f"{len(returned)} results for {len(wanted)} outputs, states and asserts", None
        return
    for index, (value, kind) in enumerate(zip(returned, wanted, strict=True)):
        if not isinstance(value, Node):
            yield f"result {index} is the constant {value!r}", None
        elif _of_value(value.meta.get("val")) != kind:
            yield f"result {index} is {_of_value(value.meta.get('val'))}, not {kind}", value


def _broken_nodes(module: GraphModule) -> Broken:
    returned = {value for value in hops.output_values(module) if isinstance(value, Node)}
    for node in module.graph.nodes:
        if node.op not in ("placeholder", "get_attr", "call_function", "output"):
            yield f"a node {node.op} {node.name}", node
        if node.op in ("placeholder", "call_function") and "val" not in node.meta:
            yield f"{node.name} has no fake value", node
        if (schema := ops.schema(node)) is not None:
            if schema.is_mutable:
                yield f"{node.target} writes to its operands", node
            if not schema.returns and node not in returned:
                yield f"{node.target} gives nothing", node


def _broken_call(call: hops.Call) -> Broken:
    """Where branches, carries and results disagree in dtype or rank, which torch promises not to happen."""
    name, taken = call.node.name, call.all_operands
    if call.node.target is torch.ops.higher_order.associative_scan:
        # Its function takes two of each operand that is scanned.
        taken = [*call.operands(1), *taken]
    for body in call.subgraphs:
        if (count := len(hops.placeholders(body))) != len(taken):
            yield f"{name} passes {len(taken)} values to a body of {count}", call.node
    results = list(map(_of_value, call.node.meta["val"]))
    if call.is_cond:
        for body in call.subgraphs:
            if (found := _of_values(hops.output_values(body))) != results:
                yield f"a branch of {name} gives {found}, the call {results}", call.node
    elif call.is_while:
        carried = _of_values(call.operands(2))
        if (found := _of_values(hops.output_values(call.subgraphs[1]))) != carried or carried != results:
            yield f"{name} starts from {carried}, its body gives {found}, the call {results}", call.node


def _of_spec(spec: TensorSpec) -> str:
    return f"{spec.dtype} of rank {len(spec.dims)}"


def _of_tensor(name: str, tensors: Tensors) -> str:
    return _of_value(tensors[name]) if name in tensors else f"the tensor {name}, which is missing"


def _of_values(values: Sequence[Any]) -> list[str]:
    return [_of_value(value_of(value)) for value in values]


# A literal and a number that is computed are of one kind.
_NUMBERS: Final = (
    ((bool, torch.SymBool), "a bool"),
    ((int, torch.SymInt), "an int"),
    ((float, torch.SymFloat), "a float"),
)


def _of_value(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of rank {value.dim()}"
    return next((name for kinds, name in _NUMBERS if isinstance(value, kinds)), f"a {type(value).__name__}")
