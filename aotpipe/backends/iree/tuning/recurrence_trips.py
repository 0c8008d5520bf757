"""Reads what a trip of a scan computes from its graph: the steps of a `kernels.recurrence`.

Elementwise ops, slices, values one after another, and products by matrices that no trip changes have a form.
Dim 0 of what the trips carry is a batch, whose sequences are apart, or a value has all numbers of one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import torch
from torch.fx import GraphModule, Node

from aotpipe.backends.iree.kernels import steps
from aotpipe.backends.iree.kernels.recurrence import Recurrence, Step, kept_values
from aotpipe.backends.iree.kernels.steps import Operand
from aotpipe.backends.iree.lower.liveness import needed_nodes
from aotpipe.backends.iree.tuning.steps_after import NAMES, same
from aotpipe.passes import hops, ops
from aotpipe.passes.decompositions.entries import static
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
_MOST_STEPS: Final = 200
_MOST_WEIGHTS: Final = 1 << 18
"""Numbers of all matrices: as many as stay in the second cache of a core."""
_MOST_NUMBERS: Final = 1 << 12
"""Numbers of the carries and of what stages of a trip hand on: they stay in the first cache."""


class _NoForm(Exception):
    """A kernel has no form for what a trip computes."""


class Trip(NamedTuple):
    """A trip as steps, and the inputs of its graph that these read.

    Attributes:
        matrices: Each with whether it has its columns first.
        has_batch: Whether dim 0 of a carry is a batch.
    """

    recurrence: Recurrence
    rows: list[Node]
    vectors: list[Node]
    matrices: list[tuple[Node, bool]]
    has_batch: bool


_LEAST_NUMBERS: Final = 8
"""Numbers of a sequence of a batch: its vectors are no longer."""


def trip(
    body: GraphModule, counts: tuple[int, int], carries: Sequence[int], outputs: Sequence[int]
) -> Trip | None:
    """What a trip of a scan computes; None where a kernel has no form for it, or is slower.

    Args:
        body: The graph of a trip.
        counts: How many carries and rows it has.
        carries: The positions of those that are computed.
        outputs: The positions of the results that are stacked.
    """
    # A value of one sequence takes vectors over all its dims.
    for has_batch in (False, True):
        try:
            return _Reader(body, counts, has_batch=has_batch).trip(carries, outputs)
        except _NoForm:
            continue
    return None


class _Reader:
    """Reads the graph of a trip."""

    def __init__(self, body: GraphModule, counts: tuple[int, int], *, has_batch: bool) -> None:
        self._body, self._has_batch = body, has_batch
        inputs = hops.placeholders(body)
        first, last = counts[0], sum(counts)
        self._carries, self._rows, self._shared = inputs[:first], inputs[first:last], inputs[last:]
        # Values that are the same for each sequence of a batch.
        self._fixed: set[Node] = set(self._shared)
        self._steps: list[Step] = []
        self._names: dict[Node, Operand] = {}
        self._vectors: dict[Node, str] = {}
        # Views of a matrix, and whether they have its columns first.
        self._views: dict[Node, tuple[Node, bool]] = {node: (node, False) for node in self._shared}
        self._matrices: dict[tuple[Node, bool], str] = {}

    def trip(self, carries: Sequence[int], outputs: Sequence[int]) -> Trip:
        """What is computed of some carries and outputs."""
        needed = needed_nodes(self._body, (*carries, *outputs))
        rows = [row for row in self._rows if row in needed]
        states = [self._carries[each] for each in carries]
        if not states or not rows or any(value_of(each).dtype is not torch.float32 for each in states + rows):
            raise _NoForm
        self._names |= {node: f"h{place}" for place, node in enumerate(states)}
        self._names |= {node: f"x{place}" for place, node in enumerate(rows)}
        for node in self._body.graph.nodes:
            if node.op == "call_function" and node in needed:
                self._read(node)
        results = hops.output_values(self._body)
        # A result may be a vector that nothing else reads.
        following, stacked = (
            tuple(self._result(results[each]) for each in some) for some in (carries, outputs)
        )
        recurrence = Recurrence(
            tuple(map(self._size, states)),
            tuple(map(self._size, rows)),
            tuple(map(self._size, self._vectors)),
            tuple(_turned(value_of(node).shape, is_turned) for node, is_turned in self._matrices),
            tuple(self._steps),
            following,
            stacked,
        )
        if not _is_small(recurrence) or (self._has_batch and max(recurrence.carries) < _LEAST_NUMBERS):
            raise _NoForm
        return Trip(recurrence, rows, list(self._vectors), list(self._matrices), self._has_batch)

    def _result(self, node: Any) -> Operand:
        """What a trip hands on."""
        if not isinstance(node, Node) or (self._has_batch and node in self._fixed):
            raise _NoForm
        self._size(node)
        operand = self._operand(node)
        if not isinstance(operand, str) or value_of(node).dtype is not torch.float32:
            raise _NoForm
        return operand

    def _read(self, node: Node) -> None:
        """Note what a node is."""
        sources = node.all_input_nodes
        if sources and all(each in self._fixed for each in sources):
            self._fixed.add(node)
        if node.target in _TURNS and node.args[0] in self._views:
            source: Any = node.args[0]
            if len(value_of(node).shape) == 2:
                matrix, is_turned = self._views[source]
                self._views[node] = (matrix, is_turned != (_order(node) == [1, 0]))
                return
        number = _number(node)
        if number is not None:
            self._names[node] = number
            self._fixed.add(node)
        elif node.target not in _LISTS:
            form = _FORMS.get(node.target) or (_Reader.elementwise if node.target in NAMES else None)
            if form is None:
                raise _NoForm
            self._names[node] = form(self, node)

    def _own(self, node: Node, rank: int | None = None) -> tuple[int, ...]:
        """The sizes of a value for one sequence, where it is broadcast to a rank."""
        value = value_of(node)
        if not isinstance(value, torch.Tensor) or value.dtype not in (torch.float32, torch.bool):
            raise _NoForm
        sizes = tuple(value.shape)
        sizes = (1,) * ((rank or len(sizes)) - len(sizes)) + sizes
        is_row = node not in self._fixed
        if self._has_batch and (is_row or rank is not None):
            batch = value_of(self._carries[0]).shape
            wanted = batch[0] if is_row and batch else 1
            if not sizes or not same(sizes[0], wanted):
                raise _NoForm
            sizes = sizes[1:]
        if not all(map(static, sizes)) or not prod(sizes):
            raise _NoForm
        return sizes

    def _size(self, node: Node) -> int:
        return prod(self._own(node))

    def _operand(self, node: Any) -> Operand:
        """What a step reads for a node."""
        if steps.is_number(node):
            return float(node)
        if not isinstance(node, Node):
            raise _NoForm
        if node not in self._names:
            if node not in self._shared or value_of(node).dtype is not torch.float32:
                raise _NoForm
            self._names[node] = self._vectors.setdefault(node, f"c{len(self._vectors)}")
        return self._names[node]

    def _add(self, op: str, operands: Sequence[Operand], size: int) -> str:
        if len(self._steps) == _MOST_STEPS:
            raise _NoForm
        self._steps.append(Step(op, tuple(operands), size))
        return f"v{len(self._steps) - 1}"

    def elementwise(self, node: Node) -> Operand:
        """An elementwise op on values of one size, or of one number."""
        name = NAMES[node.target]
        if node.kwargs:
            raise _NoForm
        wanted = [torch.float32] * len(node.args)
        if name == "where":
            wanted[0] = torch.bool
        for each, dtype in zip(node.args, wanted, strict=True):
            if isinstance(each, Node) and value_of(each).dtype is not dtype:
                raise _NoForm
        return self._add(name, [self._broadcast(each, node) for each in node.args], self._size(node))

    def _broadcast(self, given: Any, to: Node) -> Operand:
        """An operand of an elementwise op."""
        operand = self._operand(given)
        if not isinstance(given, Node) or not isinstance(operand, str):
            return operand
        is_fixed = to in self._fixed
        rank = value_of(to).dim()
        own = self._own(given, None if is_fixed else rank)
        wanted = self._own(to)
        if _without_ones(own) == _without_ones(wanted):
            return operand
        if prod(own) != 1 or value_of(given).dtype is torch.bool:
            raise _NoForm
        return self._add("spread", (operand,), prod(wanted))

    def view(self, node: Node) -> Operand:
        """The same numbers in the same order; a single one may be repeated."""
        source: Any = node.args[0]
        if node.target in _TURNS:
            order = _order(node)
            kept = [dim for dim in order if not same(value_of(source).shape[dim], 1)]
            if kept != sorted(kept):
                raise _NoForm
        size, wanted = self._size(source), self._size(node)
        if size == wanted:
            return self._operand(source)
        operand = self._operand(source)
        if not isinstance(operand, str):
            return operand
        if size != 1 or value_of(node).dtype is torch.bool:
            raise _NoForm
        return self._add("spread", (operand,), wanted)

    def _part(self, source: Any, dim: Any, first: Any, node: Node) -> Operand:
        """Some numbers one after another: from `first` on in a dim."""
        own, operand = self._own(source), self._operand(source)
        dim += value_of(source).dim() if dim < 0 else 0
        dim -= self._has_batch and source not in self._fixed
        if dim < 0 or prod(own[:dim]) != 1 or not static(first):
            raise _NoForm
        first = min(first + own[dim] if first < 0 else first, own[dim])
        if not isinstance(operand, str):
            return operand
        return self._add("slice", (operand, first * prod(own[dim + 1 :])), self._size(node))

    def slice(self, node: Node) -> Operand:
        """A slice with no gaps."""
        args: list[Any] = [*node.args, *(None, 0, None, None, 1)[len(node.args) :]]
        source, dim, first, _, step = args
        if step != 1:
            raise _NoForm
        return self._part(source, dim or 0, first or 0, node)

    def select(self, node: Node) -> Operand:
        """One index of a dim."""
        source, dim, place = node.args
        return self._part(source, dim, place, node)

    def item(self, node: Node) -> Operand:
        """One of the parts of a split."""
        split, place = node.args
        assert isinstance(split, Node)
        assert isinstance(place, int)
        if split.target is _ATEN.unbind.int:
            source, dim = (*split.args, 0)[:2]
            return self._part(source, dim, place, node)
        given: Any
        source, given, dim = (*split.args, 0)[:3]
        sizes = given if isinstance(given, list) else [given] * (place + 1)
        return self._part(source, dim, sum(sizes[:place]), node)

    def concat(self, node: Node) -> Operand:
        """Values one after another."""
        sources: Any = node.args[0]
        dim: Any = node.args[1] if len(node.args) > 1 else 0
        own = self._own(node)
        dim += value_of(node).dim() if dim < 0 else 0
        dim -= self._has_batch and node not in self._fixed
        is_mixed = any((each in self._fixed) != (node in self._fixed) for each in sources)
        if dim < 0 or prod(own[:dim]) != 1 or (self._has_batch and is_mixed):
            raise _NoForm
        if any(value_of(each).dtype is not torch.float32 for each in sources):
            raise _NoForm
        operands = [self._operand(each) for each in sources]
        if not all(isinstance(each, str) for each in operands):
            raise _NoForm
        return self._add("concat", operands, prod(own))

    def product(self, node: Node) -> Operand:
        """A row by a matrix, or a matrix by a column."""
        left: Any
        right: Any
        left, right = node.args[-2:]
        if right in self._views and left not in self._fixed:
            row, (matrix, is_turned) = left, self._views[right]
        elif left in self._views and right not in self._fixed and not self._has_batch:
            row, (matrix, is_turned) = right, self._views[left]
            is_turned = not is_turned
        else:
            raise _NoForm
        sizes = _turned(value_of(matrix).shape, is_turned) if value_of(matrix).dim() == 2 else ()
        if len(sizes) != 2 or not all(map(static, sizes)) or (self._size(row), self._size(node)) != sizes:
            raise _NoForm
        key = (matrix, is_turned)
        operand = self._operand(row)
        if not isinstance(operand, str):
            raise _NoForm
        name = self._matrices.setdefault(key, f"m{len(self._matrices)}")
        return self._add("matmul", (operand, name), sizes[1])

    def product_and_bias(self, node: Node) -> Operand:
        """`addmm`."""
        if node.kwargs:
            raise _NoForm
        found = self.product(node)
        return self._add("add", (self._broadcast(node.args[0], node), found), self._size(node))


def _number(node: Node) -> float | None:
    """The number that a tensor is full of, if it is known."""
    if node.target not in _CONSTANTS:
        return None
    value = value_of(node)
    number: Any = {"zeros_like": 0.0, "ones_like": 1.0}.get(node.target.overloadpacket.__name__)
    if number is None:
        number = node.args[0 if node.target is _ATEN.scalar_tensor.default else 1]
    return float(number) if steps.is_number(number) and value.dtype is torch.float32 else None


def _is_small(recurrence: Recurrence) -> bool:
    """Whether a core has what the trips read in its caches."""
    kept = sum(recurrence.size(each) for each in kept_values(recurrence))
    weights = sum(rows * columns for rows, columns in recurrence.matrices)
    return 2 * sum(recurrence.carries) + kept <= _MOST_NUMBERS and weights <= _MOST_WEIGHTS


def _order(node: Node) -> list[int]:
    """The dims of its operand in the order of a permuted value."""
    rank = value_of(node).dim()
    if node.target is _ATEN.permute.default:
        return [dim % rank for dim in node.args[1]]  # type: ignore[union-attr]
    first, second = node.args[1:] if node.target is _ATEN.transpose.int else (0, rank - 1)
    order = list(range(rank))
    if rank > 1:
        order[first], order[second] = order[second], order[first]  # type: ignore[index]
    return order


def _turned(sizes: Sequence[Any], is_turned: bool) -> tuple[int, int]:
    first, second = sizes
    return (second, first) if is_turned else (first, second)


def _without_ones(sizes: Sequence[int]) -> list[int]:
    return [size for size in sizes if size != 1]


_TURNS: Final = ops.overloads("permute transpose.int t")
_CONSTANTS: Final = ops.overloads("full full_like zeros_like ones_like scalar_tensor")
_LISTS: Final = ops.overloads("split_with_sizes split.Tensor unbind.int")
_VIEWS: Final = ops.overloads(
    "view _unsafe_view unsqueeze squeeze.dim squeeze.dims squeeze clone alias expand permute transpose.int t"
)
_FORMS: Final[Mapping[Any, Callable[[_Reader, Node], Operand]]] = {
    **dict.fromkeys(_VIEWS, _Reader.view),
    _ATEN.slice.Tensor: _Reader.slice,
    _ATEN.select.int: _Reader.select,
    operator.getitem: _Reader.item,
    _ATEN.cat.default: _Reader.concat,
    _ATEN.mm.default: _Reader.product,
    _ATEN.mv.default: _Reader.product,
    _ATEN.addmm.default: _Reader.product_and_bias,
}
