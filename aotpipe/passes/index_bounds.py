"""Keeps every index of a program within its table.

Compiled code has no bounds checks: an index out of range reads foreign memory. `guard(entry, tensors, ...)`
looks at every op that takes positions from data (`embedding`, `index`, `gather`, `scatter`, ...), in
the top graph and in bodies of control flow:

- An integer input that is an index as it comes gets the table's range as its value range, so that the call
  is refused at the edge; a range that was declared stays.
- An index that `ranges` proves to be in range stays as it is.
- Any other is clamped into the table and asserted: the assert becomes eager's IndexError, the clamp keeps the
  read inside until it is looked at.
- Where eager counts negative indices from the end, and one may be negative, the graph does so itself.

Gives the changed entry and the `Ranges` that it used; asserts are left in the graph for `asserts`.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import torch
from torch.fx import GraphModule, Node

from aotpipe.core.signature import TensorSpec
from aotpipe.core.stages import LegalEntry
from aotpipe.passes import hops, ops, scalars
from aotpipe.passes.decompositions.entries import static
from aotpipe.passes.emit import Emitter, rewrite
from aotpipe.passes.ranges import Ranges
from aotpipe.passes.ranges.intervals import as_bound
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
_EXPAND: Final = _ATEN.expand.default


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One index of an op.

    Attributes:
        position: Of the index among the op's arguments; `part` of it where that is a list.
        dim: Of the table that it counts along; None counts through the flat table.
        wraps: Whether eager counts negative indices from the end.
        trusted: Whether torch made the op of indices that it keeps in range itself.
    """

    table: Node
    position: int
    part: int | None = None
    dim: int | None
    wraps: bool = False
    trusted: bool = False

    def index(self, node: Node) -> Any:
        """The index, as the op has it."""
        argument = node.args[self.position]
        return argument if self.part is None else argument[self.part]  # type: ignore[index]

    def set_index(self, node: Node, index: Node) -> None:
        """Give the op another index."""
        argument: Any = index
        if self.part is not None:
            parts = list(node.args[self.position])  # type: ignore[arg-type]
            parts[self.part] = index
            argument = parts
        node.update_arg(self.position, argument)

    @property
    def size(self) -> Any:
        """How many positions there are: an int or a SymInt."""
        value = self.table.meta["val"]
        if self.dim is None:
            return value.numel()
        return value.shape[self.dim] if value.dim() else 1


GUARDED: Final[Mapping[Any, Literal["rows", "elements", "dim", "dims", "trusted dims"]]] = {
    _ATEN.embedding.default: "rows",
    _ATEN.take.default: "elements",
    **dict.fromkeys(
        ops.overloads(
            "gather index_select index_add index_copy index_fill.int_Scalar index_fill.int_Tensor "
            "index_reduce scatter.src scatter.value scatter.reduce scatter.value_reduce scatter_add "
            "scatter_reduce.two"
        ),
        "dim",
    ),
    _ATEN.index.Tensor: "dims",
    _ATEN.index_put.default: "dims",
    ops.UNSAFE_INDEX: "trusted dims",
    ops.UNSAFE_INDEX_PUT: "trusted dims",
}
"""Every op that may be left after decomposition and takes positions from a tensor, and what they count."""


def accesses(node: Node) -> list[Access]:
    """The indices of a node's op; none for an op that takes no positions from a tensor."""
    if (counted := GUARDED.get(node.target)) is None:
        return []
    table: Any
    second: Any
    table, second = node.args[:2]
    if counted == "rows":
        return [Access(table=table, position=1, dim=0)]
    if counted == "elements":
        return [Access(table=table, position=1, dim=None, wraps=True)]
    if counted == "dim":
        return [Access(table=table, position=2, dim=second)]
    trusted = counted == "trusted dims"
    return [
        Access(table=table, position=1, part=dim, dim=dim, wraps=True, trusted=trusted)
        for dim, index in enumerate(second)
        if isinstance(index, Node)
    ]


def guard(
    entry: LegalEntry, tensors: Mapping[str, torch.Tensor], declared: Collection[str] = ()
) -> tuple[LegalEntry, Ranges]:
    """Keep every index of an entry within its table.

    The entry is flat and in control-flow normal form; its graph is changed in place. `declared` are the
    inputs whose value range the user gave.
    """
    for module in hops.walk(entry.graph):
        # A `select` at a position that depends on data becomes an `index`, which has a tensor to guard.
        selects = module.graph.find_nodes(op="call_function", target=_ATEN.select.int)
        rewrite(module, [node for node in selects if isinstance(node.args[2], Node)], _indexed)
    entry = _with_inferred_ranges(entry, declared)
    ranges = Ranges(entry, tensors)
    for module in hops.walk(entry.graph):
        _guard_graph(module, ranges)
    return entry, ranges


def _indexed(emit: Emitter, select: Node) -> Node:
    source, dim, index = select.args
    row = emit(_ATEN.full.default, [1], index, dtype=torch.int64)
    # A position counts from the end where it is negative, as in `index`, not in `index_select`.
    indices = [*[None] * (dim % value_of(source).dim()), row]
    return emit(_ATEN.squeeze.dim, emit(_ATEN.index.Tensor, source, indices), dim)


_HANDS_ON_ALL: Final = ops.REARRANGES | ops.overloads("reshape squeeze _to_copy")
_INDEX_DTYPES: Final = (torch.int32, torch.int64)


def _with_inferred_ranges(entry: LegalEntry, declared: Collection[str]) -> LegalEntry:
    """Give integer inputs that are indices as they come the range of their table."""
    first = len(entry.weights) + len(entry.signature.state)
    nodes = hops.placeholders(entry.graph)[first:]
    specs = dict(zip(nodes, entry.signature.tensor_inputs, strict=True))
    found: dict[str, TensorSpec] = {}
    for node in entry.graph.graph.nodes:
        for access in accesses(node):
            size, source = access.size, _origin(access.index(node))
            if access.trusted or source not in specs or not isinstance(size, int) or size == 0:
                continue
            spec = found.get(specs[source].name, specs[source])
            if spec.name not in declared:
                found[spec.name] = _narrowed(spec, -size if access.wraps else 0, size - 1)
    inputs = tuple(found.get(leaf.name, leaf) for leaf in entry.signature.inputs)
    return replace(entry, signature=replace(entry.signature, inputs=inputs))


def _origin(node: Any) -> Any:
    """The node that an index has all its values from."""
    while isinstance(node, Node) and node.target in _HANDS_ON_ALL:
        source = node.args[0]
        if not isinstance(source, Node) or value_of(source).dtype not in _INDEX_DTYPES:
            break
        node = source
    return node


def _narrowed(spec: TensorSpec, low: int, high: int) -> TensorSpec:
    if spec.value_range is not None:
        low, high = max(low, int(spec.value_range[0])), min(high, int(spec.value_range[1]))
    return replace(spec, value_range=(low, high))


def _guard_graph(module: GraphModule, ranges: Ranges) -> None:
    done: dict[tuple[Node, object, bool, bool], Node] = {}
    for node in list(module.graph.nodes):
        for access in accesses(node):
            index, size = access.index(node), as_bound(access.size)
            interval, space = ranges.of(index), ranges.space
            if space.within(interval, 0, size - 1):
                continue
            key = (index, size, access.wraps, access.trusted)
            if key not in done:
                emit = Emitter(module, node)
                in_range = access.wraps and space.within(interval, -size, size - 1)
                source = _repeated(index)
                kept = _from_start(emit, source, access) if in_range else _within(emit, source, access)
                done[key] = kept if source is index else emit(_EXPAND, kept, index.args[1])
            access.set_index(node, done[key])
    module.graph.lint()
    module.recompile()


def _repeated(index: Node) -> Node:
    """The tensor whose elements an index repeats, each at least once, as for all elements of a row."""
    source = index.args[0] if index.target is _EXPAND else index
    assert isinstance(source, Node)
    given, made = value_of(source).shape, value_of(index).shape
    more = [
        size
        for size, before in zip(made[::-1], [*given[::-1], *[1] * len(made)], strict=False)
        if size != before
    ]
    return source if all(static(size) and size for size in more) else index


def _from_start(emit: Emitter, index: Node, access: Access) -> Node:
    """The index with negative positions counted from the end; compilers do that for some ops only."""
    shifted = emit(_ATEN.add.Tensor, index, _size(emit, access))
    return emit(_ATEN.where.self, emit(_ATEN.lt.Scalar, index, 0), shifted, index)


def _within(emit: Emitter, index: Node, access: Access) -> Node:
    size = _size(emit, access)
    is_fixed = isinstance(size, int)
    last = size - 1 if is_fixed else emit(operator.sub, size, 1)
    if not access.trusted:
        lowest = 0 if not access.wraps else -size if is_fixed else emit(operator.mul, size, -1)
        above, below = emit(_ATEN.ge.Scalar, index, lowest), emit(_ATEN.le.Scalar, index, last)
        inside = scalars.all_true(emit, emit(_ATEN.logical_and.default, above, below))
        extent = f"of size {size}" if is_fixed else "whose size varies"
        name = ops.name_of(emit.before)
        emit(ops.ASSERT_TENSOR, inside, f"index out of range: {name} in a dimension {extent}")
    if access.wraps:
        index = _from_start(emit, index, access)
    dtype = value_of(index).dtype
    lower, upper = (emit(_ATEN.full.default, [], end, dtype=dtype) for end in (0, last))
    return emit(_ATEN.minimum.default, emit(_ATEN.maximum.default, index, lower), upper)


def _size(emit: Emitter, access: Access) -> Any:
    # A size that only a run knows may have been found to be one number since its tensor was made.
    size = access.size.node.maybe_as_int() if isinstance(access.size, torch.SymInt) else access.size
    if isinstance(size, int):
        return size
    if access.dim is None:
        return emit(_ATEN.sym_numel.default, access.table)
    return emit(_ATEN.sym_size.int, access.table, access.dim)
