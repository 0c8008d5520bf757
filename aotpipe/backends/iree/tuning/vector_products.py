"""Batched products of a row and a matrix that each call brings both, as sums of elementwise products.

With data tiling the compiler packs both operands of a product into tiles. Of weights it does so once; what a
call computes is packed in each call, which takes longer than the product where a matrix is read for one row
only. So it is in a decoder, for the keys and values of each head: of 96 heads, 256 positions and 64 features
the two products took 2.8 ms with the packing, and take 0.7 ms as sums (IREE 3.13, AVX-512, one thread). A row
of weights stays a product: of a grouped convolution the sums took 1.1 to 1.3 times as long.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final

import torch
from torch.fx import Node

from aotpipe.core.stages import LegalEntry
from aotpipe.passes import hops, ops
from aotpipe.passes.decompositions.entries import is_one
from aotpipe.passes.emit import Emitter, rewrite
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
_PRODUCT: Final = _ATEN.bmm.default
_SAME: Final = ops.REARRANGES | ops.overloads("t transpose.int clone")
# Products of half precision are summed in float32, and of integers by `decompositions.integers`.
_DTYPES: Final = frozenset({torch.float32, torch.float64})


def as_sums(entry: LegalEntry) -> None:
    """Write each such product of an entry point's graphs as a sum."""
    given = frozenset(hops.placeholders(entry.graph)[len(entry.weights) :])
    for graph in list(hops.walk(entry.graph)):
        found = graph.graph.find_nodes(op="call_function", target=_PRODUCT)
        if rewrite(graph, found, partial(_sum, given)):
            graph.recompile()


def _sum(given: Collection[Node], emit: Emitter, node: Node) -> Node | None:
    left, right = node.args
    assert isinstance(left, Node)
    assert isinstance(right, Node)
    if value_of(node).dtype not in _DTYPES or not (_changes(left, given) and _changes(right, given)):
        return None
    (_, rows, _), (_, _, columns) = value_of(left).shape, value_of(right).shape
    if is_one(rows):
        return _times(emit, left, right, summed=1)
    if is_one(columns):
        return _times(emit, right, left, summed=2)
    return None


def _times(emit: Emitter, vector: Node, matrix: Node, *, summed: int) -> Node:
    """The sums of a batch of matrices over one of their dims, each element times the vector's for that dim.

    They are summed over the dim that lies innermost in memory as the last one: the compiler would write all
    products in another order before it sums them over one between others.
    """
    dim = 2 if is_one(value_of(matrix).stride(summed)) else 1
    if dim == summed:
        vector = emit(_ATEN.transpose.int, vector, 1, 2)
    else:
        matrix = emit(_ATEN.transpose.int, matrix, 1, 2)
    sums = emit(_ATEN.sum.dim_IntList, emit(_ATEN.mul.Tensor, vector, matrix), [dim])
    return emit(_ATEN.unsqueeze.default, sums, summed)


def _changes(node: Node, given: Collection[Node]) -> bool:
    """Whether each call has another operand: what is given to the body of a region may be a weight."""
    while node.target in _SAME:
        source = node.args[0]
        assert isinstance(source, Node)
        node = source
    return node.op == "call_function" or node in given
