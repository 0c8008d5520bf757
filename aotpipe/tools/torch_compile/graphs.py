"""From a graph as torch.compile hands it over to a module that the stages take, and back to its results.

AOTAutograd's graphs are pure: flat tensors and sizes in, and out. `closed(graph, arguments, examples)` gives
a `Closed`: the same graph as a module whose weights are its own, whose sizes are read off its tensors, and
whose other arguments are its inputs by name, with what of them may vary.

AOTAutograd makes views of results by their strides, and the code after a graph may write into a result of
which another one is a view. `layouts(graph)` reads off a graph how its results lie in memory;
`placed(layouts, tensors)` gives the tensors of a program the same.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import sympy
import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef  # torch's own way to tell storages apart

from aotpipe.core.dims import Auto
from aotpipe.errors import SourceLine, UnsupportedOps
from aotpipe.model import source
from aotpipe.passes import hops

_LARGEST: Final = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a graph, as it was traced.

    Attributes:
        varies: Axis -> range, of what may vary; a number's only axis is 0.
        expression: Of a number that is a size: the symbol, as text.
        sizes: Axis -> the symbol of a tensor's size, where it is one.
    """

    name: str
    varies: Mapping[int, Auto]
    expression: str = ""
    sizes: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A module for the stages.

    Attributes:
        taken: The index of the argument that each input is, in order.
        weights: The index of each argument that became a weight.
    """

    module: torch.nn.Module
    taken: tuple[int, ...]
    weights: tuple[int, ...]
    args: tuple[Any, ...]
    dynamic_shapes: Mapping[str, Mapping[int, Auto]]


def arguments(graph: fx.GraphModule) -> tuple[Argument, ...]:
    """What a graph takes; read while it is compiled, since its symbols mean nothing later."""
    return tuple(map(_argument, hops.placeholders(graph)))


def _argument(node: fx.Node) -> Argument:
    value = node.meta.get("val")
    # torch says that a shape is of integers, though they may be symbols.
    shape: Sequence[Any] = value.shape if isinstance(value, torch.Tensor) else [value]
    dynamic = {axis: size for axis, size in enumerate(shape) if isinstance(size, torch.SymInt)}
    varies = {axis: _range(size) for axis, size in dynamic.items()}
    symbols = {axis: str(size.node.expr) for axis, size in dynamic.items()}
    if isinstance(value, torch.Tensor):
        return Argument(name=node.name, varies=varies, sizes=symbols)
    return Argument(name=node.name, varies=varies, expression=symbols.get(0, ""))


def _range(size: torch.SymInt) -> Auto:
    found = size.node.shape_env.bound_sympy(size.node.expr)
    low = int(found.lower) if found.lower.is_Integer else 0
    finite = isinstance(found.upper, sympy.Integer) and int(found.upper) < _LARGEST
    return Auto(min=max(low, 0), max=int(found.upper) if finite else None)


def where(graph: fx.GraphModule) -> SourceLine | None:
    """The model's first line in a graph."""
    traces = (node.meta.get("stack_trace") for node in graph.graph.nodes if node.op.startswith("call"))
    return next(filter(None, map(source.from_stack_trace, traces)), None)


def ops(graph: fx.GraphModule) -> int:
    """How many ops a graph computes."""
    return sum(node.op.startswith("call") for node in graph.graph.nodes)


def closed(
    graph: fx.GraphModule, wanted: Sequence[Argument], examples: Sequence[Any], written: Collection[int] = ()
) -> Closed:
    """Make a module of a graph and the arguments of a call.

    Arguments that are `written` change between calls, and so become no weights.
    """
    module = copy.copy(graph)
    module.graph = copy.deepcopy(graph.graph)
    nodes = hops.placeholders(module)
    # torch.compile marks what is a parameter or a buffer of a module.
    held = {
        index
        for index, each in enumerate(examples)
        if isinstance(each, torch.nn.Parameter) or hasattr(each, "_dynamo_static_input_type")
    }
    weights = tuple(sorted(held.difference(written)))
    # By the symbol of a size, the argument and the axis that have it.
    holders: dict[str, tuple[int, int]] = {}
    for index, each in enumerate(wanted):
        for axis, size in each.sizes.items() if index not in weights else ():
            holders.setdefault(size, (index, axis))
    read = {i: holders[each.expression] for i, each in enumerate(wanted) if each.expression in holders}
    with module.graph.inserting_before(hops.first_computed(module)):
        for index in weights:
            name = f"weight_{index}"
            module.register_buffer(name, examples[index].detach())
            _replace(nodes[index], module.graph.get_attr(name))
        for index, (tensor, axis) in read.items():
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


def _replace(old: fx.Node, new: fx.Node) -> None:
    new.meta = dict(old.meta)
    old.replace_all_uses_with(new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How one result lies in memory.

    Attributes:
        is_number: Whether it is a size or another number, not a tensor.
        order: The order of its dims in memory, the slowest first; None where that is their own.
        strides: Where they are known and leave gaps, or the memory is shared.
        memory: The key of the memory that it shares with other results; None where it has its own.
    """

    is_number: bool = False
    order: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    memory: int | None = None
    offset: int = 0


def layouts(graph: fx.GraphModule) -> tuple[Layout, ...]:
    """The layout of each result, in order.

    Raises:
        UnsupportedOps: Results share memory in a way that varies with the sizes of a call.
    """
    leaves = hops.output_values(graph)
    values = [leaf.meta.get("val") if isinstance(leaf, fx.Node) else None for leaf in leaves]
    memories = [_memory(value) if isinstance(value, torch.Tensor) else None for value in values]
    uses = Counter(memories)
    shared = (memory if uses[memory] > 1 else None for memory in memories)
    return tuple(map(_layout, values, shared))


def _memory(value: torch.Tensor) -> int:
    return int(StorageWeakRef(value.untyped_storage()).cdata)  # type: ignore[no-untyped-call]


def _layout(value: Any, memory: int | None) -> Layout:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return Layout(is_number=True)
    if not isinstance(value, torch.Tensor):
        return Layout()
    given: Sequence[Any] = value.stride()
    known = all(type(each) is int for each in given)
    if memory is not None:
        offset: Any = value.storage_offset()
        if not known or type(offset) is not int:
            raise UnsupportedOps(
                "two results share memory, as their sizes have it",
                hint="clone one of them, or compile it with dynamic=False",
            )
        return Layout(strides=tuple(given), memory=memory, offset=offset)
    if value.is_contiguous():
        return Layout()
    hints = [each.node.hint if isinstance(each, torch.SymInt) else each for each in given]
    order = tuple(sorted(range(value.dim()), key=lambda axis: -hints[axis]))
    found = Layout(order=None if order == tuple(range(value.dim())) else order)
    # An expanded result has no memory of its own to write to.
    return replace(found, strides=tuple(given)) if known and all(hints) else found


def placed(wanted: Sequence[Layout], tensors: Sequence[Any]) -> list[Any]:
    """Each of a program's results in its layout."""
    rooms: dict[int, torch.Tensor] = {}
    for layout, tensor in zip(wanted, tensors, strict=True):
        if layout.memory is not None:
            assert layout.strides is not None
            steps = zip(tensor.shape, layout.strides, strict=True)
            end = 1 + layout.offset + sum((size - 1) * stride for size, stride in steps)
            room = rooms.get(layout.memory)
            if room is None or room.numel() < end:
                rooms[layout.memory] = tensor.new_empty(max(end, 0))
    return [_placed(layout, tensor, rooms) for layout, tensor in zip(wanted, tensors, strict=True)]


def _placed(layout: Layout, tensor: Any, rooms: dict[int, torch.Tensor]) -> Any:
    if layout.is_number:
        return tensor.item()
    if layout.memory is not None and tensor.numel():
        assert layout.strides is not None
        return rooms[layout.memory].as_strided(tensor.shape, layout.strides, layout.offset).copy_(tensor)
    if layout.strides is not None:
        return torch.empty_strided(tensor.shape, layout.strides, dtype=tensor.dtype).copy_(tensor)
    if layout.order is not None:
        return torch.empty_permuted(tensor.shape, layout.order, dtype=tensor.dtype).copy_(tensor)
    return tensor
