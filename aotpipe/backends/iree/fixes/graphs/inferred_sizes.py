"""Writes the size of a view that is left to be inferred, where another is a number of the run."""

from __future__ import annotations

import math
import operator
from functools import reduce
from typing import Any, Final

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from aotpipe.backends.iree.fixes.graphs import each_node
from aotpipe.core.fixes import Fix
from aotpipe.passes import ops
from aotpipe.passes.decompositions.entries import static
from aotpipe.passes.emit import Emitter
from aotpipe.passes.scalars import value_of

_VIEWS: Final = ops.overloads("view reshape _unsafe_view")


def _written(emit: Emitter, node: Node) -> Node | None:
    """The same view with all of its sizes."""
    source, sizes = node.args[0], list(ops.arguments(node)["size"])
    others = [size for size in sizes if size != -1]
    if len(others) == len(sizes) or not any(isinstance(size, Node) for size in others):
        return None
    if not all(statically_known_true(value_of(size) > 0) for size in others):
        return None  # where eager raises, a quotient by 0 would end the process
    assert isinstance(source, Node)
    place = sizes.index(-1)
    sizes[place] = value_of(node).shape[place]
    if not static(sizes[place]):
        elements = _product(emit, [_size(emit, source, dim) for dim in range(value_of(source).dim())])
        sizes[place] = emit(operator.floordiv, elements, _product(emit, others))
    view = emit(node.target, source, sizes)
    # The rest of the graph was traced with this shape.
    view.meta = dict(node.meta)
    return view


def _size(emit: Emitter, source: Node, dim: int) -> Any:
    size = value_of(source).shape[dim]
    return size if static(size) else emit(torch.ops.aten.sym_size.int, source, dim)


def _product(emit: Emitter, sizes: list[Any]) -> Any:
    known = math.prod(size for size in sizes if isinstance(size, int))
    factors = [size for size in sizes if isinstance(size, Node)]
    return reduce(lambda left, right: emit(operator.mul, left, right), [*factors, known])


FIX: Final = Fix(
    id="inferred-sizes",
    fault="IREE infers another size than the right one where a view leaves one size to be inferred and "
    "another is computed of sizes that vary",
    remedy="all sizes are written",
    targets=("iree-*",),
    program="`x.repeat(2 * n).view(-1, 2 * n)` of `float32[n]`, where n varies",
    apply=each_node(_VIEWS, _written),
)
