"""Python numbers at a graph's edges become 0-d tensors.

`as_tensor(emit, value)` writes a SymInt, SymFloat, SymBool or number as a 0-d tensor (int64, float64, bool).
Comparisons are written over tensors too, because a compiler can hold a size but no symbolic bool.
`lower(module)` does so with the numbers that a compiler cannot hold: symbolic bools, and integers of floats.
`open_input(module, placeholder)` turns a number that is passed in into a tensor that the graph reads.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from aotpipe.passes import ops
from aotpipe.passes.emit import Emitter, fake_mode, rewrite

_ATEN: Final = torch.ops.aten
_CONNECTIVES: Final = (operator.and_, operator.or_, torch.sym_not, operator.not_)
_EXTREMES: Final = (torch.sym_min, torch.sym_max)
_ARITHMETIC: Final = (*_EXTREMES, operator.add, operator.sub, operator.mul, operator.neg)
_OF_FLOATS: Final[Mapping[Any, Any]] = {
    **{each: ops.OF_NUMBERS[each] for each in _ARITHMETIC},
    operator.truediv: _ATEN.div.Tensor,
    operator.pow: _ATEN.pow.Tensor_Tensor,
    pow: _ATEN.pow.Tensor_Tensor,
    ops.SYM_SQRT: _ATEN.sqrt.default,
}
# What is written as a tensor where it gives a float.
_COMPUTED: Final = (operator.pow, pow, ops.SYM_SQRT, torch.sym_float)
_MOST_FACTORS: Final = 8
# Functions from a float to an integer.
_ROUNDED: Final[Mapping[Any, Any]] = {
    math.trunc: _ATEN.trunc.default,
    math.floor: _ATEN.floor.default,
    math.ceil: _ATEN.ceil.default,
    round: _ATEN.round.default,
    torch.sym_int: _ATEN.trunc.default,
}


def dtype_of(value: object) -> torch.dtype:
    """The dtype of a number's tensor, as `torch.tensor` on a double-precision default would choose it."""
    if isinstance(value, bool | torch.SymBool):
        return torch.bool
    return torch.int64 if isinstance(value, int | torch.SymInt) else torch.float64


def value_of(argument: Any) -> Any:
    """The fake value of a node's argument: a node's `meta["val"]`, any other as it is."""
    return argument.meta["val"] if isinstance(argument, Node) else argument


def as_tensor(emit: Emitter, value: Any, dtype: torch.dtype | None = None) -> Node:
    """Write a number, or a node that gives one, as a 0-d tensor.

    The dtype is `dtype_of(value)` where None is given.
    """
    wanted = dtype or dtype_of(value_of(value))
    if isinstance(value, Node):
        if value.target is ops.ITEM:
            return _read(emit, value.args[0], wanted)
        if value.target in ops.COMPARISONS:
            if any(isinstance(side, int) and not -(2**63) <= side < 2**63 for side in value.args):
                # torch's bound of what has none: no number of the program reaches it.
                compare: Any = value.target
                known = compare(*(side if isinstance(side, int) else 0 for side in value.args))
                return emit(_ATEN.full.default, [], known, dtype=torch.bool)
            left, right = (as_tensor(emit, side, _common(value)) for side in value.args)
            return emit(ops.OF_NUMBERS[value.target], left, right)
        if value.target in _CONNECTIVES:
            return emit(ops.OF_NUMBERS[value.target], *(as_tensor(emit, side) for side in value.args))
        if value.target in (_OF_FLOATS if wanted is torch.float64 else _EXTREMES):
            return emit(_OF_FLOATS[value.target], *(as_tensor(emit, side, wanted) for side in value.args))
        if value.target is torch.sym_ite:
            test, then, other = value.args
            chosen = (as_tensor(emit, side, wanted) for side in (then, other))
            return emit(_ATEN.where.self, as_tensor(emit, test), *chosen)
        if value.target is torch.sym_float:
            return as_tensor(emit, value.args[0], torch.float64)
        if value.target in _ROUNDED and dtype_of(value_of(value.args[0])) is torch.float64:
            rounded = emit(_ROUNDED[value.target], as_tensor(emit, value.args[0], torch.float64))
            return emit(ops.CAST, rounded, dtype=wanted)
    return emit(_ATEN.full.default, [], value, dtype=wanted)


def _common(comparison: Node) -> torch.dtype:
    dtypes = {dtype_of(value_of(side)) for side in comparison.args}
    return torch.float64 if torch.float64 in dtypes else torch.int64


def _read(emit: Emitter, source: Any, dtype: torch.dtype) -> Node:
    assert isinstance(source, Node)
    if value_of(source).dim():
        source = emit(_ATEN.view.default, source, [])
    return source if value_of(source).dtype is dtype else emit(ops.CAST, source, dtype=dtype)


def all_true(emit: Emitter, flags: Node) -> Node:
    """Write whether every element of a bool tensor is true, none included, as a 0-d bool."""
    rank = value_of(flags).dim()
    if not rank:
        return flags
    wrong = emit(ops.CAST, emit(_ATEN.logical_not.default, flags), dtype=torch.int64)
    return emit(_ATEN.eq.Scalar, emit(_ATEN.sum.dim_IntList, wrong, list(range(rank))), 0)


def lower(module: GraphModule) -> None:
    """Write the numbers of a graph and its subgraphs that no compiler holds as tensors."""
    for graph in (each for each in module.modules() if isinstance(each, GraphModule)):
        _fold_known(graph)
        rewrite(graph, (node for node in graph.graph.nodes if node.op == "call_function"), _lowered)
        graph.graph.eliminate_dead_code()
        graph.recompile()


def _fold_known(module: GraphModule) -> None:
    """Write the numbers that are computed of sizes, and are the same in every call, as such.

    Where the sizes of a program are fixed, torch computes them while it traces, and leaves the ops.
    """
    for node in list(module.graph.nodes):
        if node.op == "call_function" and (value := _known(node)) is not None:
            node.replace_all_uses_with(value)


def _known(node: Node) -> float | None:
    value = node.meta.get("val")
    if not isinstance(value, (int, float, torch.SymInt)) or node.target in (operator.getitem, ops.ITEM):
        return None
    is_of_tensor = any(isinstance(value_of(each), torch.Tensor) for each in node.all_input_nodes)
    if is_of_tensor and node.target is not _ATEN.sym_size.int:
        return None
    return value.node.maybe_as_int() if isinstance(value, torch.SymInt) else value


def _lowered(emit: Emitter, node: Node) -> Any:
    if node.target is torch.sym_sum:
        parts: Any = node.args[0] if isinstance(node.args[0], list | tuple) else node.args
        return functools.reduce(functools.partial(emit, operator.add), parts)
    if node.target in (operator.pow, pow):
        base, exponent = node.args
        is_whole = isinstance(value_of(base), torch.SymInt)
        if is_whole and isinstance(exponent, int) and 0 < exponent <= _MOST_FACTORS:
            return functools.reduce(functools.partial(emit, operator.mul), [base] * exponent)
    value: Any = node.meta.get("val")
    if node.target is operator.mod and isinstance(value, torch.SymInt):
        # IREE's importer takes it for C's, and has no lowering for that.
        whole = emit(operator.mul, emit(operator.floordiv, *node.args), node.args[1])
        new = emit(operator.sub, node.args[0], whole)
    elif node.target in _FILLS and not value.dim() and isinstance(value_of(node.args[-1]), torch.SymBool):
        return as_tensor(emit, node.args[-1], torch.bool)
    elif (
        node.target in _EXTREMES
        or node.target is torch.sym_ite
        or (node.target in _COMPUTED and isinstance(value, torch.SymFloat))
        or (node.target in _ROUNDED and dtype_of(value_of(node.args[0])) is torch.float64)
    ):
        new = emit(ops.ITEM, as_tensor(emit, node))
    else:
        return None
    new.meta["val"] = value
    return new


_FILLS: Final = (_ATEN.full.default, _ATEN.scalar_tensor.default)


def open_input(module: GraphModule, placeholder: Node) -> None:
    """Let a number's placeholder take a 0-d tensor instead, which the graph reads."""
    number = placeholder.meta["val"]
    with fake_mode(module):
        placeholder.meta["val"] = torch.empty((), dtype=dtype_of(number))
    if not placeholder.users:
        return
    following = next(node for node in module.graph.nodes if node.op not in ("placeholder", "get_attr"))
    with module.graph.inserting_before(following):
        item = module.graph.call_function(ops.ITEM, (placeholder,))
    item.meta["val"] = number
    placeholder.replace_all_uses_with(item, lambda user: user is not item)
