"""From a graph as torch.compile hands it over to a module that the stages take.

AOTAutograd's graphs are pure: flat tensors and sizes in, and out. `closed(graph, arguments, examples)` gives
a `Closed`: the same graph as a module whose weights are its own, whose sizes are read off its tensors, and
whose other arguments are its inputs by name, with what of them may vary.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sympy
import torch
from torch import fx

from aotpipe.core.dims import Auto
from aotpipe.errors import SourceLine
from aotpipe.model import source

_LARGEST: Final = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a graph, as it was traced.

    Attributes:
        name: Its placeholder's.
        varies: Axis -> range, of what may vary; a number's only axis is 0.
        expression: Of a number that is a size: the symbol, as text.
        sizes: Axis -> the symbol of a tensor's size, where it is one.
    """

    name: str
    varies: Mapping[int, Auto]
    expression: str = ""
    sizes: Mapping[int, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A module for the stages.

    Attributes:
        taken: The index of the argument that each input is, in order.
        weights: The index of each argument that became a weight.
        args: Example inputs.
        dynamic_shapes: What may vary of them.
    """

    module: torch.nn.Module
    taken: tuple[int, ...]
    weights: tuple[int, ...]
    args: tuple[Any, ...]
    dynamic_shapes: Mapping[str, Mapping[int, Auto]]


def arguments(graph: fx.GraphModule) -> tuple[Argument, ...]:
    """What a graph takes; read while it is compiled, since its symbols mean nothing later."""
    return tuple(_argument(node) for node in graph.graph.nodes if node.op == "placeholder")


def _argument(node: fx.Node) -> Argument:
    value = node.meta.get("val")
    if isinstance(value, torch.SymInt):
        return Argument(name=node.name, varies={0: _range(value)}, expression=str(value.node.expr))
    if not isinstance(value, torch.Tensor):
        return Argument(name=node.name, varies={})
    shape: Sequence[Any] = value.shape  # which torch says are integers, though they may be symbols
    dynamic = {axis: size for axis, size in enumerate(shape) if isinstance(size, torch.SymInt)}
    return Argument(
        name=node.name,
        varies={axis: _range(size) for axis, size in dynamic.items()},
        sizes={axis: str(size.node.expr) for axis, size in dynamic.items()},
    )


def _range(size: torch.SymInt) -> Auto:
    found = size.node.shape_env.bound_sympy(size.node.expr)
    low = int(found.lower) if found.lower.is_Integer else 0
    finite = isinstance(found.upper, sympy.Integer) and int(found.upper) < _LARGEST
    return Auto(min=max(low, 0), max=int(found.upper) if finite else None)


def where(graph: fx.GraphModule) -> SourceLine | None:
    """The model's first line in a graph."""
    for node in graph.graph.nodes:
        if node.op.startswith("call") and (found := source.from_stack_trace(node.meta.get("stack_trace"))):
            return found
    return None


def ops(graph: fx.GraphModule) -> int:
    """How many ops a graph computes."""
    return sum(node.op.startswith("call") for node in graph.graph.nodes)


def closed(
    graph: fx.GraphModule,
    wanted: Sequence[Argument],
    examples: Sequence[Any],
    written: Collection[int] = (),
) -> Closed:
    """Make a module of a graph and the arguments of a call.

    Args:
        graph: As it was traced.
        wanted: Its arguments.
        examples: Those of a call.
        written: Arguments that change between calls, and so become no weights.
    """
    module = copy.copy(graph)
    module.graph = copy.deepcopy(graph.graph)
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    weights = tuple(index for index, each in enumerate(examples) if _is_held(each) and index not in written)
    read = {index for index in range(len(nodes)) if _is_read_off(wanted, index, weights)}
    with module.graph.inserting_before(next(n for n in module.graph.nodes if n.op != "placeholder")):
        for index in weights:
            name = f"weight_{index}"
            module.register_buffer(name, examples[index].detach())
            _replace(nodes[index], module.graph.get_attr(name))
        for index in sorted(read):
            tensor, axis = _holder(wanted, index, weights)
            op = torch.ops.aten.sym_size.int
            _replace(nodes[index], module.graph.call_function(op, (nodes[tensor], axis)))
    for index in (*weights, *read):
        module.graph.erase_node(nodes[index])
    module.recompile()
    taken = tuple(index for index in range(len(nodes)) if index not in read and index not in weights)
    return Closed(
        module=module.eval(),
        taken=taken,
        weights=weights,
        args=tuple(examples[index] for index in taken),
        dynamic_shapes={wanted[i].name: wanted[i].varies for i in taken if wanted[i].varies},
    )


def _is_held(value: Any) -> bool:
    """Whether an argument is a parameter or a buffer of a module, which torch.compile marks."""
    return isinstance(value, torch.nn.Parameter) or hasattr(value, "_dynamo_static_input_type")


def _replace(old: fx.Node, new: fx.Node) -> None:
    new.meta = dict(old.meta)
    old.replace_all_uses_with(new)


def _is_read_off(wanted: Sequence[Argument], index: int, weights: Sequence[int]) -> bool:
    return bool(wanted[index].expression) and _holder(wanted, index, weights) != (-1, -1)


def _holder(wanted: Sequence[Argument], index: int, weights: Sequence[int]) -> tuple[int, int]:
    """A tensor and its axis whose size a number is."""
    for place, each in enumerate(wanted):
        for axis, expression in (each.sizes or {}).items():
            if place not in weights and expression == wanted[index].expression:
                return place, axis
    return -1, -1
