"""Sizes that only a run knows, and that torch took for known ones since shapes had to agree.

    n = int(lengths.max())
    x.masked_fill(torch.arange(n) >= lengths[:, None], 0)      # only runs where n is x.shape[1]

torch.export asserts that `n` is `x.shape[1]` and takes it for that from then on: a program that is traced
anew compares the size with itself, and the assert is gone. `check(program)` comes before. It asserts the same
over tensors, which stay what they are, and lets what was made of `n` be made of the known size: a run in
which the two differ would write beyond its buffers before anyone looks at the assert.
"""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any, Final

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from aotpipe.errors import UnsupportedOps
from aotpipe.passes import hops, ops
from aotpipe.passes.emit import Emitter
from aotpipe.passes.scalars import as_tensor
from aotpipe.passes.source_lines import nearest_line

_ATEN: Final = torch.ops.aten
_ITEMS: Final = (ops.ITEM, _ATEN.item.default)
_SIZE: Final = _ATEN.sym_size.int
_UNIQUE: Final = _ATEN._unique2.default  # noqa: SLF001  # torch.unique; it has no other op
_ARITHMETIC: Final[Mapping[Any, Any]] = {sympy.Add: operator.add, sympy.Mul: operator.mul}
Found = tuple[Node, sympy.Symbol, sympy.Expr]
"""A node that finds out a size, its symbol, and what torch takes the symbol for."""


def check(program: ExportedProgram) -> ExportedProgram:
    """Give the same program with an assert for each size of the run that was taken for a known one."""
    if not any(any(_joined(body)) for body in hops.walk(program.graph_module)):
        return program
    module = copy.deepcopy(program.graph_module)
    for body in hops.walk(module):
        for node, symbol, known in list(_joined(body)):
            _check(body, node, symbol, known)
        body.recompile()
    return hops.with_graph(program, module)


def _joined(body: GraphModule) -> Iterator[Found]:
    """The nodes that find out a size which stands for a known one, of the ops that `_FORMS` has."""
    seen: set[sympy.Symbol] = set()
    for node in body.graph.nodes:
        value = node.meta.get("val")
        for size in (value,) if isinstance(value, torch.SymInt) else getattr(value, "shape", ()):
            if not isinstance(size, torch.SymInt):
                continue
            raw, known = size.node._expr, size.node.expr  # noqa: SLF001  # `expr` is what replaced it
            if raw in seen or not raw.is_Symbol or not free_unbacked_symbols(raw):
                continue
            seen.add(raw)  # the first node that has it finds it out
            is_known = known != raw and not free_unbacked_symbols(known)
            if is_known and node.users and (node.target in _ITEMS or _form(node) is not None):
                yield node, raw, known


def _check(body: GraphModule, node: Node, symbol: sympy.Symbol, known: sympy.Expr) -> None:
    asserts = [
        each
        for each in body.graph.nodes
        if each.target is ops.ASSERT_NUMBER and symbol.name in re.findall(r"\w+", str(each.args[1]))
    ]
    emit = Emitter(
        body, node.next, cause=next((each for each in asserts if "stack_trace" in each.meta), node)
    )
    size = _written(emit, known, _sizes(emit))
    if size is None:
        raise _refusal(node, known)
    if node.target in _ITEMS:
        count, safe = node.args[0], size
        assert isinstance(count, Node)
        if count.meta["val"].dim():
            count = emit(_ATEN.view.default, count, [])
    else:
        make = _form(node)
        form = make(emit, node, size) if make is not None else None
        if form is None:
            raise _refusal(node, known)
        count, safe = form
    holds = emit(_ATEN.eq.Tensor, count, as_tensor(emit, size, torch.int64))
    said = f"a size of {known} is needed, and the run found another"
    emit(ops.ASSERT_TENSOR, holds, next((str(each.args[1]) for each in reversed(asserts)), said))
    node.replace_all_uses_with(safe)


def _refusal(node: Node, known: sympy.Expr) -> UnsupportedOps:
    # Without the assert a call in which it does not hold would read and write beyond its buffers.
    of = node.args[0] if node.target is operator.getitem else node
    assert isinstance(of, Node)
    return UnsupportedOps(
        f"a size that only a run finds out is taken for {known}, and it cannot be compared with that",
        reason=f"{of.target} gives it",
        hint="choose the elements by torch.where or by indices of a tensor, whose number is known",
        where=nearest_line(node),
    )


Form = tuple[Node, Node]
"""The number of elements that were found, as a tensor, and as many elements as torch took for granted."""


def _form(node: Node) -> Callable[[Emitter, Node, Any], Form | None] | None:
    """What makes the form of a node that finds out a size; None where nothing does."""
    if node.target is operator.getitem:
        of = node.args[0]
        return _OF_SEVERAL.get(of.target) if isinstance(of, Node) else None
    return _FORMS.get(node.target)


def _nonzero(emit: Emitter, node: Node, size: Any) -> Form | None:
    mask = _argument(node, "self")
    if not mask.meta["val"].dim():
        return None
    return _count(emit, mask), emit(_ATEN.stack.default, _true_places(emit, mask, size), 1)


def _column(emit: Emitter, node: Node, size: Any) -> Form | None:
    """Of `torch.where(mask)` and `mask.nonzero(as_tuple=True)`: the places along one dim each."""
    of = node.args[0]
    assert isinstance(of, Node)
    mask = of.args[0]
    if not isinstance(mask, Node) or not mask.meta["val"].dim():
        return None
    places = _true_places(emit, mask, size)
    return _count(emit, mask), _replaced(node, dict(enumerate(places)))


def _replaced(node: Node, results: Mapping[int, Node]) -> Node:
    """Use some results in place of those of the op that one is of; gives that for this one."""
    of = node.args[0]
    assert isinstance(of, Node)
    for other in [each for each in of.users if each is not node and each.args[1] in results]:
        other.replace_all_uses_with(results[other.args[1]])  # type: ignore[index]  # an int
    return results[node.args[1]]  # type: ignore[index]  # an int


def _unique(emit: Emitter, node: Node, size: Any) -> Form | None:
    """Of `unique` and `unique_consecutive`: the first of each run of equal elements, and how many it has."""
    of = node.args[0]
    assert isinstance(of, Node)
    given = ops.arguments(of)
    if given.get("dim") is not None or node.args[1] not in (0, 2):
        return None
    values = emit(_ATEN.reshape.default, _argument(of, "self"), [-1])
    if of.target is _UNIQUE:
        values = emit(operator.getitem, emit(_ATEN.sort.stable, values, stable=True), 0)
    length = emit(_SIZE, values, 0)
    every = emit(_ATEN.arange.default, length, dtype=torch.int64)
    before = emit(_ATEN.clamp.default, emit(_ATEN.sub.Scalar, every, 1), 0)
    differs = emit(_ATEN.ne.Tensor, values, emit(_ATEN.index_select.default, values, 0, before))
    starts = emit(_ATEN.logical_or.default, differs, emit(_ATEN.eq.Scalar, every, 0))
    places = _first_true(emit, starts, size)
    results = {0: emit(_ATEN.index_select.default, values, 0, places)}
    if given["return_counts"]:
        end = emit(_ATEN.view.default, as_tensor(emit, length, torch.int64), [1])
        ends = emit(_ATEN.cat.default, [emit(_ATEN.slice.Tensor, places, 0, 1), end])
        results[2] = emit(_ATEN.sub.Tensor, ends, places)
    return _count(emit, starts), _replaced(node, results)


def _true_places(emit: Emitter, mask: Node, size: Any) -> list[Node]:
    """Along each dim of a mask, where its first true elements are."""
    rank = mask.meta["val"].dim()
    rest = _first_true(emit, mask, size)
    found: list[Node] = []
    for dim in range(rank - 1, 0, -1):
        length = as_tensor(emit, emit(_SIZE, mask, dim), torch.int64)
        found.append(emit(_ATEN.remainder.Tensor, rest, length))
        rest = emit(_ATEN.floor_divide.default, rest, length)
    return [rest, *reversed(found)]


def _masked_select(emit: Emitter, node: Node, size: Any) -> Form | None:
    of, mask = _argument(node, "self"), _argument(node, "mask")
    whole, part = of.meta["val"].shape, mask.meta["val"].shape
    pairs = zip(whole, part, strict=False)
    if len(whole) != len(part) or not all(statically_known_true(size == other) for size, other in pairs):
        # One is as large as the other only once they are broadcast.
        of = emit(_ATEN.where.self, mask, of, of)
        mask = emit(_ATEN.logical_and.default, mask, emit(_ATEN.ones_like.default, of, dtype=torch.bool))
    return _selected(emit, of, mask, size)


def _index(emit: Emitter, node: Node, size: Any) -> Form | None:
    indices = node.args[1]
    assert isinstance(indices, list | tuple)
    given = [(dim, each) for dim, each in enumerate(indices) if isinstance(each, Node)]
    if len(given) != 1 or given[0][1].meta["val"].dtype not in (torch.bool, torch.uint8):
        return None
    [(dim, mask)] = given
    return _selected(emit, _argument(node, "self"), mask, size, dim)


def _selected(emit: Emitter, of: Node, mask: Node, size: Any, dim: int = 0) -> Form | None:
    rank = mask.meta["val"].dim()
    if not rank:
        return None
    rows = emit(_ATEN.flatten.using_ints, of, dim, dim + rank - 1) if rank > 1 else of
    return _count(emit, mask), emit(_ATEN.index_select.default, rows, dim, _first_true(emit, mask, size))


def _count(emit: Emitter, mask: Node) -> Node:
    return emit(_ATEN.sum.default, emit(_ATEN.ne.Scalar, mask, 0))


def _slice(emit: Emitter, node: Node, size: Any) -> Form | None:
    given = ops.arguments(node)
    of, dim, step = node.args[0], given["dim"], given["step"]
    if not isinstance(of, Node) or step != 1:
        return None
    length = as_tensor(emit, emit(_SIZE, of, dim), torch.int64)

    def place(bound: Any) -> Node:
        number = as_tensor(emit, bound, torch.int64)
        from_end = emit(_ATEN.add.Tensor, number, length)
        counted = emit(_ATEN.where.self, emit(_ATEN.lt.Scalar, number, 0), from_end, number)
        return emit(_ATEN.minimum.default, emit(_ATEN.clamp.default, counted, 0), length)

    start = place(given["start"] or 0)
    end = length if given["end"] is None else place(given["end"])
    count = emit(_ATEN.clamp.default, emit(_ATEN.sub.Tensor, end, start), 0)
    last = emit(_ATEN.sub.Scalar, length, 1)
    rows = emit(_ATEN.add.Tensor, emit(_ATEN.arange.default, size, dtype=torch.int64), start)
    rows = emit(_ATEN.clamp.default, emit(_ATEN.minimum.default, rows, last), 0)
    return count, emit(_ATEN.index_select.default, of, dim, rows)


def _positions(emit: Emitter, repeats: Node, size: Any) -> Form:
    """Each place of a row as often as `repeats` says."""
    ends = emit(_ATEN.cumsum.default, emit(_ATEN.to.dtype, repeats, torch.int64), 0)
    places = emit(_ATEN.arange.default, size, dtype=torch.int64)
    at = emit(_ATEN.searchsorted.Tensor, ends, places, right=True)
    last = emit(_ATEN.sub.Scalar, as_tensor(emit, emit(_SIZE, repeats, 0), torch.int64), 1)
    return emit(_ATEN.sum.default, repeats), emit(_ATEN.minimum.default, at, last)


def _repeated(emit: Emitter, node: Node, size: Any) -> Form:
    return _positions(emit, _argument(node, "repeats"), size)


def _repeated_rows(emit: Emitter, node: Node, size: Any) -> Form | None:
    of, repeats, dim = _argument(node, "self"), _argument(node, "repeats"), ops.arguments(node)["dim"]
    if repeats.meta["val"].dim() != 1 or (dim is None and of.meta["val"].dim() != 1):
        return None
    count, places = _positions(emit, repeats, size)
    return count, emit(_ATEN.index_select.default, of, dim or 0, places)


def _argument(node: Node, name: str) -> Node:
    found = ops.arguments(node)[name]
    assert isinstance(found, Node)
    return found


_FORMS: Final[Mapping[Any, Callable[[Emitter, Node, Any], Form | None]]] = {
    _ATEN.nonzero.default: _nonzero,
    _ATEN.argwhere.default: _nonzero,
    _ATEN.masked_select.default: _masked_select,
    _ATEN.index.Tensor: _index,
    _ATEN.slice.Tensor: _slice,
    _ATEN.repeat_interleave.Tensor: _repeated,
    _ATEN.repeat_interleave.self_Tensor: _repeated_rows,
}


_OF_SEVERAL: Final[Mapping[Any, Callable[[Emitter, Node, Any], Form | None]]] = {
    _ATEN.where.default: _column,
    _ATEN.nonzero_numpy.default: _column,
    _UNIQUE: _unique,
    _ATEN.unique_consecutive.default: _unique,
    _ATEN.unique_dim.default: _unique,
}
"""The same for ops with several results, of one of which a node is."""


def _first_true(emit: Emitter, mask: Node, count: Any) -> Node:
    """Where the first true elements of a mask are, in a row; element 0 where there are fewer."""
    flat = emit(_ATEN.reshape.default, mask, [-1])
    true = emit(_ATEN.ne.Scalar, flat, 0)
    rank = emit(_ATEN.sub.Scalar, emit(_ATEN.cumsum.default, emit(_ATEN.to.dtype, true, torch.int64), 0), 1)
    beyond = as_tensor(emit, count, torch.int64)
    counts = emit(_ATEN.logical_and.default, true, emit(_ATEN.lt.Tensor, rank, beyond))
    # Those that are false, and those beyond the last, are written to a place that is dropped.
    place = emit(_ATEN.where.self, counts, rank, beyond)
    room = emit(_ATEN.zeros.default, [emit(operator.add, count, 1)], dtype=torch.int64)
    every = emit(_ATEN.arange.default, emit(_SIZE, flat, 0), dtype=torch.int64)
    return emit(_ATEN.slice.Tensor, emit(_ATEN.scatter.src, room, 0, place, every), 0, 0, count)


def _sizes(emit: Emitter) -> dict[sympy.Expr, tuple[Node, int | None]]:
    """Where a graph's inputs have each size: the input, and its dim where it is a tensor."""
    found: dict[sympy.Expr, tuple[Node, int | None]] = {}
    for node in hops.placeholders(emit.module):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            found.setdefault(value.node.expr, (node, None))
        elif isinstance(value, torch.Tensor):
            for axis, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    found.setdefault(size.node.expr, (node, axis))
    return found


def _written(
    emit: Emitter, expression: sympy.Expr, sizes: Mapping[sympy.Expr, tuple[Node, int | None]]
) -> Any:
    """A number, or a node, of an expression of sizes; None where the graph's inputs do not tell."""
    if expression.is_Integer:
        return int(expression)
    if expression in sizes:
        node, axis = sizes[expression]
        return node if axis is None else emit(_SIZE, node, axis)
    kind = _ARITHMETIC.get(expression.func)
    parts = [_written(emit, each, sizes) for each in expression.args]
    if kind is None or any(part is None for part in parts):
        return None
    return reduce(lambda one, other: emit(kind, one, other), parts)
