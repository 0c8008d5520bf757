"""Keeps updates from reading what they have just written.

Where a slice of a tensor is replaced by what is made of the tensor itself, the parts are concatenated to a
new tensor. What other updates take of the tensor that they update gets a buffer of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import fx

from aotpipe.backends.iree.fixes.graphs import GraphRewrite, equal_nodes, modules
from aotpipe.core.fixes import Fix
from aotpipe.passes import ops
from aotpipe.passes.emit import Emitter
from aotpipe.passes.extract import dependencies
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
_UPDATES: Final = frozenset(
    getattr(_ATEN, name)
    for name in (
        *("slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter", "masked_scatter"),
        *("scatter", "scatter_add", "scatter_reduce"),
        *("index_put", "_unsafe_index_put", "index_copy", "index_add", "index_fill"),
    )
)
_SLICES: Final = frozenset({_ATEN.slice_scatter.default, _ATEN.select_scatter.default})
# Beside views, which their schemas tell, what gives its operands' elements in other places.
_MOVES: Final = frozenset(
    getattr(_ATEN, name)
    for name in ("clone", "copy", "cat", "stack", "flip", "roll", "repeat", "constant_pad_nd")
)
# The operands of which one is what the op gives where they are the same; the compiler finds that out.
_CHOOSES: Final = {_ATEN.where.self: (1, 2), _ATEN.maximum.default: (0, 1), _ATEN.minimum.default: (0, 1)}
_NEUTRAL: Final = {_ATEN.add: 0, _ATEN.sub: 0, _ATEN.mul: 1, _ATEN.div: 1}


def join(module: fx.GraphModule) -> None:
    """Concatenate in place of updating slices by what is made of the same tensor, where sizes are known."""
    left = [node for node in module.graph.nodes if node.target in _SLICES]
    while left:
        same = equal_nodes(module.graph)
        while left:
            node = left.pop(0)
            bounds = _bounds(node)
            whole = same[node.args[0]]
            if bounds and _is_made_of(node.args[1], whole, same, _later(module.graph, whole, same)):
                _concatenate(module, node, *bounds)
                break


def _bounds(node: fx.Node) -> tuple[int, int, int] | None:
    """The dim, and where the slice begins and ends; None where only a run knows, or for steps."""
    given, value = ops.arguments(node), value_of(node)
    dim = given["dim"]
    size = value.shape[dim]
    if "index" in given:
        start = given["index"]
        end = start + 1 if start != -1 else None
    else:
        start, end = given["start"], given["end"]
        if given["step"] != 1:
            return None
    if not all(isinstance(each, int | None) for each in (start, end)) or not isinstance(size, int):
        return None
    first, last, _ = slice(start, end).indices(size)
    return dim % value.dim(), first, max(first, last)


def _is_made_of(
    value: Any, whole: fx.Node, same: dict[fx.Node, fx.Node], is_followed: Callable[[fx.Node], bool]
) -> bool:
    """Whether a value is computed from another through nodes that are followed, or is one."""
    followed = dependencies([value], is_followed)
    met = [value, *(used for node in followed for used in node.all_input_nodes)]
    return any(same[node] is whole for node in met)


def _concatenate(module: fx.GraphModule, node: fx.Node, dim: int, start: int, end: int) -> None:
    emit = Emitter(module, node)
    whole, source = node.args[:2]
    value = value_of(node)
    middle = source
    if value_of(source).dim() < value.dim():
        middle = emit(_ATEN.unsqueeze.default, source, dim)
    if value_of(middle).dtype != value.dtype:
        middle = emit(_ATEN._to_copy.default, middle, dtype=value.dtype)  # noqa: SLF001  # an op's name
    parts = [
        *([emit(_ATEN.slice.Tensor, whole, dim, 0, start)] if start else []),
        *([middle] if end > start else []),
        *([emit(_ATEN.slice.Tensor, whole, dim, end, value.shape[dim])] if end < value.shape[dim] else []),
    ]
    if len(parts) > 1:
        node.replace_all_uses_with(emit(_ATEN.cat.default, parts, dim), propagate_meta=False)
        module.graph.erase_node(node)


def name_apart(module: fx.GraphModule) -> None:
    """Give what an update takes of the very tensor that it updates a node of its own, which can be copied."""
    for node in list(module.graph.nodes):
        if _packet(node) not in _UPDATES:
            continue
        target, *others = node.args
        used: dict[fx.Node, fx.Node] = {}
        fx.map_arg(others, lambda each, used=used: used.setdefault(each, each))  # type: ignore[misc]
        if target in used:
            used[target] = Emitter(module, node)(_ATEN.clone.default, target)
            node.args = (target, *fx.map_arg(others, used.__getitem__))


def own_buffers(node: fx.Node) -> tuple[fx.Node, ...]:
    """The operands of an update that are parts of what it updates; none of any other op."""
    if _packet(node) not in _UPDATES:
        return ()
    target, *given = dict.fromkeys(node.all_input_nodes)
    sources = [
        source for source in given if isinstance(value_of(source), torch.Tensor)
    ]  # no bound of a slice
    if target is not node.args[0]:
        return ()
    same = equal_nodes(node.graph)
    is_followed = _later(node.graph, same[target], same) if node.target in _SLICES else partial(_moves, same)
    return tuple(source for source in sources if _is_made_of(source, same[target], same, is_followed))


def _later(graph: fx.Graph, whole: fx.Node, same: dict[fx.Node, fx.Node]) -> Callable[[fx.Node], bool]:
    """Whether a node stands after a value: what stands before it is not made of it."""
    order = {node: at for at, node in enumerate(graph.nodes)}
    return lambda each: order[same[each]] > order[whole]


def _moves(same: dict[fx.Node, fx.Node], node: fx.Node) -> bool:
    """Whether an op gives elements of its operands as they are."""
    if _packet(node) in _MOVES or ops.gives_view(node):
        return True
    if node.target in _CHOOSES:
        one, other = (node.args[place] for place in _CHOOSES[node.target])
        return isinstance(one, fx.Node) and isinstance(other, fx.Node) and same[one] is same[other]
    neutral = _NEUTRAL.get(_packet(node))
    return neutral is not None and len(node.args) > 1 and bool(node.args[1] == neutral)


def _packet(node: fx.Node) -> Any:
    return getattr(node.target, "overloadpacket", None)


def _join_all(graphs: Sequence[fx.GraphModule]) -> None:
    for module in modules(graphs):
        join(module)
        name_apart(module)


FIX: Final = Fix(
    id="overlapping-updates",
    fault="IREE writes in place: it fuses an update with what makes it of the same tensor, and reads rows "
    "that it wrote before; where elements are only moved, it refuses its own copy or a scatter reads what "
    "it wrote",
    remedy="such a slice becomes a concatenation; other updates of this kind get their operands in buffers "
    "of their own",
    targets=("iree-*",),
    program="`y[1:] = y[:-1] * 3`",
    apply=GraphRewrite(_join_all, own_buffers),
)
