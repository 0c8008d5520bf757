"""Keeps the channels last between convolutions, which compute them so (`kernels`).

Each gives a view with the channels before the sizes. Here the ops that read such a view read what is below it
instead, and give such a view themselves. The compiler does so across elementwise ops whose result is read
once. Between layers that are read twice, and around pools, it writes images in another order, which took a
quarter of a U-Net of 16 channels of 128x128 (IREE 3.13, AVX-512, one thread).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from aotpipe.backends.iree.tuning import kernels, pools
from aotpipe.core.stages import LegalEntry
from aotpipe.passes import hops, ops
from aotpipe.passes.emit import Emitter
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
_PERMUTE: Final = _ATEN.permute.default
_VIEW: Final = _ATEN.view.default
_SUMS: Final = ops.overloads("mean.dim sum.dim_IntList amax amin")
_ELEMENTWISE: Final = ops.overloads("clone full_like zeros_like ones_like") | {ops.CAST}


def keep_channels_last(entry: LegalEntry) -> None:
    """Do so in each graph of an entry point."""
    for graph in list(hops.walk(entry.graph)):
        if _Images(graph).move():
            graph.recompile()


def _to_last(rank: int) -> list[int]:
    return [0, *range(2, rank), 1]


def _to_second(rank: int) -> list[int]:
    return [0, rank - 1, *range(1, rank - 1)]


class _Images:
    """The values of a graph that have a form with the channels last."""

    def __init__(self, graph: GraphModule) -> None:
        self._graph = graph
        self._last: dict[Node, Node] = {}
        self._forms: Mapping[Any, Callable[[Emitter, Node], Node | None]] = {
            _ATEN.cat.default: self._cat,
            _ATEN.constant_pad_nd.default: self._pad,
            _ATEN.slice.Tensor: self._slice,
            _ATEN.index_select.default: self._index_select,
            _VIEW: self._view,
        }

    def move(self) -> bool:
        """Change the graph; whether there was anything to change."""
        for node in list(self._graph.graph.nodes):
            if node.op != "call_function":
                continue
            if node.target is _PERMUTE:
                self._permute(node)
            elif any(source in self._last for source in node.all_input_nodes):
                self._step(node)
        for view in reversed(self._last):
            if not view.users:
                self._graph.graph.erase_node(view)
        return bool(self._last)

    def _permute(self, node: Node) -> None:
        """Take up the view of a convolution's result, or read what is below one."""
        source, dims = _args(node)
        rank = len(dims)
        below = self._last.get(source)
        if below is None:
            is_image = rank > 3 or (rank == 3 and _made_by(source) is kernels.OP)
            if is_image and list(dims) == _to_second(rank):
                self._last[node] = source
            return
        order = [_to_second(rank)[dim] for dim in dims]
        if order == list(range(rank)):
            self._replace(node, below)
        elif order == _to_second(rank):
            # The same view, of a result that was moved twice.
            self._replace(node, self._seen(Emitter(self._graph, node), below))
        else:
            self._replace(node, Emitter(self._graph, node)(_PERMUTE, below, order))

    def _step(self, node: Node) -> None:
        emit = Emitter(self._graph, node)
        if node.target in self._forms:
            new = self._forms[node.target](emit, node)
        elif node.target in _SUMS:
            new = self._reduced(emit, node)
        elif pools.is_max_pool(node):
            return self._max_pool(emit, node)
        elif node.target in _ELEMENTWISE or torch.Tag.pointwise in getattr(node.target, "tags", ()):
            new = self._elementwise(emit, node)
        else:
            return None
        if new is not None:
            self._replace(node, self._seen(emit, new))
        return None

    def _seen(self, emit: Emitter, new: Node) -> Node:
        """The view of a new value that has the channels before the sizes."""
        view = emit(_PERMUTE, new, _to_second(value_of(new).dim()))
        self._last[view] = new
        return view

    def _replace(self, node: Node, new: Node) -> None:
        node.replace_all_uses_with(new)
        self._graph.graph.erase_node(node)

    def _operand(self, emit: Emitter, operand: Any, rank: int) -> Any:
        """An operand of an elementwise op over images, in their layout."""
        if not isinstance(operand, Node) or not isinstance(value_of(operand), torch.Tensor):
            return operand
        if value_of(operand).dim() == rank and operand in self._last:
            return self._last[operand]
        if not value_of(operand).dim():
            return operand
        while value_of(operand).dim() < rank:
            operand = emit(_ATEN.unsqueeze.default, operand, 0)
        return emit(_PERMUTE, operand, _to_last(rank))

    def _elementwise(self, emit: Emitter, node: Node) -> Node | None:
        rank = value_of(node).dim()
        if all(value_of(each).dim() != rank for each in node.all_input_nodes if each in self._last):
            return None
        args = [self._operand(emit, each, rank) for each in node.args]
        kwargs = {key: self._operand(emit, each, rank) for key, each in node.kwargs.items()}
        kwargs.pop("memory_format", None)
        return emit(node.target, *args, **kwargs)

    def _cat(self, emit: Emitter, node: Node) -> Node | None:
        parts, *dims = _args(node)
        rank = value_of(node).dim()
        if any(value_of(each).dim() != rank for each in node.all_input_nodes):
            return None  # an empty list of numbers, which torch leaves out
        dim = _moved(dims[0] if dims else node.kwargs.get("dim", 0), rank)
        return emit(_ATEN.cat.default, [self._operand(emit, each, rank) for each in parts], dim)

    def _pad(self, emit: Emitter, node: Node) -> Node:
        x, amounts, *value = _args(node)
        rank = value_of(node).dim()
        pairs = [(0, 0)] * rank
        for place in range(len(amounts) // 2):
            pairs[rank - 1 - place] = tuple(amounts[2 * place : 2 * place + 2])
        moved = [pairs[dim] for dim in _to_last(rank)]
        flat = [amount for pair in reversed(moved) for amount in pair]
        return emit(_ATEN.constant_pad_nd.default, self._last[x], flat, *value)

    def _slice(self, emit: Emitter, node: Node) -> Node:
        x, *rest = _args(node)
        given = [
            *rest,
            *(node.kwargs[key] for key in ("dim", "start", "end", "step")[len(rest) :] if key in node.kwargs),
        ]
        dim = _moved(given[0] if given else 0, value_of(node).dim())
        return emit(_ATEN.slice.Tensor, self._last[x], dim, *given[1:])

    def _index_select(self, emit: Emitter, node: Node) -> Node | None:
        x, dim, index = _args(node)
        if x not in self._last:
            return None
        return emit(_ATEN.index_select.default, self._last[x], _moved(dim, value_of(node).dim()), index)

    def _view(self, emit: Emitter, node: Node) -> Node | None:
        """Sizes that are joined or split, of the same batch and channels."""
        [x] = [each for each in node.all_input_nodes if each in self._last]
        given, made, sizes = value_of(x).shape, value_of(node).shape, _args(node)[1]
        is_kept = len(made) > 2 and all(statically_known_true(given[dim] == made[dim]) for dim in (0, 1))
        if not is_kept or any(isinstance(size, int) and size < 0 for size in sizes):
            # Torch has no view of all numbers in an order that they do not lie in.
            node.replace_input_with(x, emit.contiguous(x))
            return None
        return emit(_VIEW, emit.contiguous(self._last[x]), [sizes[0], *sizes[2:], sizes[1]])

    def _reduced(self, emit: Emitter, node: Node) -> Node | None:
        x, dims, *keeps = _args(node)
        rank = value_of(x).dim()
        keep = keeps[0] if keeps else node.kwargs.get("keepdim", False)
        dims = [dims] if isinstance(dims, int) else dims
        if not dims or not isinstance(dims, list | tuple):
            return None
        moved = sorted(_moved(dim, rank) for dim in dims)
        rest = {key: value for key, value in node.kwargs.items() if key != "keepdim"}
        if keep:
            return emit(node.target, self._last[x], moved, True, **rest)
        if moved == list(range(1, rank - 1)):
            self._replace(node, emit(node.target, self._last[x], moved, False, **rest))
        return None

    def _max_pool(self, emit: Emitter, node: Node) -> None:
        values = pools.only_values(node)
        x = _args(node)[0]
        if values is None or (new := pools.emitted(emit, node, self._last[x])) is None:
            return
        self._replace(values, self._seen(emit, new))
        self._graph.graph.erase_node(node)


def _made_by(node: Node) -> Any:
    """The op that made what is viewed, cut or padded."""
    while node.target in (_VIEW, _ATEN.slice.Tensor):
        node = _args(node)[0]
    return node.target


def _args(node: Node) -> Any:
    """The arguments of a node, which are of any type."""
    return node.args


def _moved(dim: Any, rank: int) -> int:
    """Where a dim is once the channels are last."""
    return _to_last(rank).index(dim % rank)
