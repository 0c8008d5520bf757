"""Sums of many elements, and of products of broadcast factors, in parts.

A compiler adds one element after another to a running total, whose rounding grows with their number: of 32768
elements the sum is 30 times less exact than torch's, which adds in pairs. The sum of the sums of parts is as
exact as torch's, and takes 0.7 of the time on IREE's CPU. So a sum of many elements is taken one dim at a
time, and a long dim in two steps.

The compiler also fuses a sum over several dims with the product that is summed, and makes a contraction of it
that it then refuses where a factor has one of those dims only by broadcasting (`vector.contract`, IREE 3.13).
`split(module)` sums such a product over its last dim first, then over the others.

A dim whose size varies, or is a prime, has no parts of one size, and a running sum (`cumsum`), which torch
takes in float64, has none at all. `widen(module)` lets such sums be computed in float64, which costs a tenth
of a small sum and nothing of one that waits for memory.
"""

from __future__ import annotations

from math import isqrt, prod
from typing import Final

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from aotpipe.passes import ops
from aotpipe.passes.decompositions.entries import is_one
from aotpipe.passes.emit import Emitter, rewrite
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
_SUM: Final = _ATEN.sum.dim_IntList
_RUNNING: Final = _ATEN.cumsum.default
# With this many elements, one running total rounds visibly more than torch's sum in pairs.
_MANY: Final = 1024
# Of no more than these the sum is off by less than 1e-6, and a part of a sum that is split has no more, of up
# to 16 million elements.
_FEW: Final = 4096
# torch is exact in each element of a running sum, of which a model may take what is left of it: the sine of a
# phase of 4000 steps was off by 0.05.
_FEW_RUNNING: Final = 64
# A shorter part is not worth a second sum.
_LEAST: Final = 8


def split(module: GraphModule) -> bool:
    """Write several sums in place of each such one; gives whether there was one."""
    sums = module.graph.find_nodes(op="call_function", target=_SUM)
    found = [node for node in sums if _has_many(node) or (len(_dims(node)) > 1 and _misses_one(node))]
    return rewrite(
        module, found, lambda emit, node: (_by_dims if _has_many(node) else _last_first)(emit, node)
    )


def widen(module: GraphModule) -> bool:
    """Compute sums in float64 that may be of many elements one after another; gives whether there was one."""
    sums = [node for node in module.graph.nodes if node.target in (_SUM, _RUNNING)]
    return rewrite(module, filter(_may_be_long, sums), _wide)


def _may_be_long(node: Node) -> bool:
    shape = value_of(node.args[0]).shape
    if value_of(node).dtype is not torch.float32:
        return False
    few = _FEW if node.target is _SUM else _FEW_RUNNING
    return not statically_known_true(prod(shape[dim] for dim in _dims(node)) <= few)


def _wide(emit: Emitter, node: Node) -> Node:
    if node.target is _SUM:
        total = emit(_SUM, node.args[0], _dims(node), ops.arguments(node)["keepdim"], dtype=torch.float64)
    else:
        total = emit(_RUNNING, emit(ops.CAST, node.args[0], dtype=torch.float64), *_dims(node))
    return emit(ops.CAST, total, dtype=torch.float32)


def _last_first(emit: Emitter, node: Node) -> Node:
    *outer, last = _dims(node)
    keepdim = ops.arguments(node)["keepdim"]
    inner = emit(_SUM, node.args[0], [last], keepdim, **node.kwargs)
    return emit(_SUM, inner, outer, keepdim, **node.kwargs)


def _by_dims(emit: Emitter, node: Node) -> Node:
    """One dim after another, from the last, which lies closest in memory; a long one in two steps."""
    total = node.args[0]
    assert isinstance(total, Node)
    for dim in reversed(_dims(node)):
        shape = value_of(total).shape
        part = _part(shape[dim])
        if part > 1:
            sizes = [
                size if isinstance(size, int) else emit(_ATEN.sym_size.int, total, place)
                for place, size in enumerate(shape)
            ]
            sizes[dim : dim + 1] = [shape[dim] // part, part]
            parts = emit(_ATEN.view.default, total, sizes)
            total = emit(_SUM, parts, [dim + 1], False, **node.kwargs)
        total = emit(_SUM, total, [dim], ops.arguments(node)["keepdim"], **node.kwargs)
    return total


def _part(size: object) -> int:
    """The size of the parts of a long dim; 1 where it is not long, or has no such parts."""
    if not isinstance(size, int) or size < _MANY:
        return 1
    return next((part for part in range(isqrt(size), _LEAST - 1, -1) if size % part == 0), 1)


def _has_many(node: Node) -> bool:
    """Whether many floats, whose order matters, are summed, and can be summed in parts."""
    value = value_of(node.args[0])
    if not (value_of(node).is_floating_point() or value_of(node).is_complex()):
        return False
    sizes = [size for size in (value.shape[dim] for dim in _dims(node)) if isinstance(size, int) and size > 1]
    return prod(sizes) >= _MANY and (len(sizes) > 1 or _part(sizes[0]) > 1)


def _dims(node: Node) -> list[int]:
    rank = value_of(node.args[0]).dim()
    given = ops.arguments(node)["dim"]
    if isinstance(given, int):
        given = [given]
    # A 0-d tensor has no dim, but torch accepts 0 and -1.
    return sorted(dim % rank for dim in given) if given and rank else list(range(rank))


def _misses_one(node: Node) -> bool:
    """Whether what is summed is a product of which a factor is broadcast along a summed dim."""
    product = node.args[0]
    if not isinstance(product, Node) or product.target is not _ATEN.mul.Tensor:
        return False
    shape = value_of(product).shape
    return any(
        _is_broadcast(factor, shape, dim)
        for factor in product.args
        if isinstance(factor, Node)
        for dim in _dims(node)
    )


def _is_broadcast(factor: Node, shape: torch.Size, dim: int) -> bool:
    while factor.target is _ATEN.expand.default and isinstance(factor.args[0], Node):
        factor = factor.args[0]
    value = value_of(factor)
    if not isinstance(value, torch.Tensor) or not value.dim():
        return False
    own = dim - (len(shape) - value.dim())
    return own < 0 or (is_one(value.shape[own]) and not is_one(shape[dim]))
