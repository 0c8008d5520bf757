"""Evaluates a legal graph on jax values: one table entry per op, each result in its node's dtype.

`Interpreter(extents).run(module, values)` gives the outputs of a graph. Traced by jax, that is the lowering.
Higher-order ops become jax's structured control flow, by functions of `run(graph, values)`, which evaluates a
subgraph, and of the op's own arguments:

    cond(pred, true, false, operands)        lax.cond: only the taken branch runs
    while_loop(test, body, carries, extra)   lax.while_loop: zero trips give `carries`
    map_impl(f, xs, extra)                   lax.scan over dim 0
    scan(f, init, xs, extra)                 lax.scan over dim 0
    associative_scan(f, xs, extra)           lax.scan over dim 0 from the second row on

What the operands do not name a subgraph does not read, so that closures are operands like any other.

Raises `Refused` with the node, for an op without an entry, for one without a rule that padding reaches, and
for a size that depends on data.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Final

import jax
import torch
from jax import lax
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import GraphModule

from aotpipe.backends.xla.ops import table
from aotpipe.backends.xla.padding.rules import Arena, Call, Padded, bare
from aotpipe.backends.xla.padding.sizes import Extents, Unpaddable, scalar
from aotpipe.backends.xla.values import (
    BOOL,
    FLOAT64,
    INT32,
    INT64,
    Array,
    UnknownSize,
    cast,
    dtype_of,
    is_array,
)
from aotpipe.errors import SourceLine
from aotpipe.model.torch_arrays import view_numpy
from aotpipe.passes import hops, ops, scalars, unbacked
from aotpipe.passes.source_lines import nearest_line

_HOP: Final = torch.ops.higher_order
NO_RULE: Final = "padding would reach its results, and there is no rule that keeps it away"
_MARK: Final = re.compile(r"aot(\d+)(?=[/:\"]|$)")


class Refused(Exception):
    """A node that has no lowering."""

    def __init__(self, node: fx.Node, reason: str) -> None:
        super().__init__(reason)
        self.node = node


class Lines:
    """The lines of the nodes that were lowered, each under a mark of its own.

    jax keeps a name beside each op of a module, and the mark is part of it: trace a node's lowering within
    `of(node)`; then `find(name)` gives the line of the node by the name of one of its ops.
    """

    def __init__(self) -> None:
        self._lines: list[SourceLine | None] = []

    def of(self, node: fx.Node) -> AbstractContextManager[Any]:
        """Mark what is traced while the context lasts as a node's."""
        self._lines.append(nearest_line(node))
        return jax.named_scope(f"aot{len(self._lines) - 1}")

    def find(self, name: str) -> SourceLine | None:
        """The line of the innermost node in an op's name that has one."""
        found = (self._lines[int(mark)] for mark in reversed(_MARK.findall(name)))
        return next((line for line in found if line is not None), None)


class Interpreter:
    """Evaluates graphs, nested ones too, under one set of sizes.

    Values are `Padded`, and numbers that padding makes two are `Size`. An op goes by its rule where padding
    reaches it, and as it is elsewhere.
    """

    def __init__(self, extents: Extents, lines: Lines | None = None) -> None:
        self._extents = extents
        self._arena = Arena(extents)
        self._lines = lines

    def run(self, module: fx.GraphModule, values: Sequence[Any]) -> list[Any]:
        """The outputs of a graph, given a value for each placeholder: arrays with plain axes, and numbers."""
        known: dict[fx.Node, Any] = {}
        for node, value in zip(hops.placeholders(module), values, strict=True):
            known[node] = self._given(node, value)
        for node in module.graph.nodes:
            if node.op == "get_attr":
                found = attribute(module, str(node.target))
                known[node] = self._arena.fixed(found) if is_array(found) else found
            elif node.op == "call_function":
                known[node] = self._guarded(node, known)
        return [
            self._plain(known[one]) if isinstance(one, fx.Node) else one for one in hops.output_values(module)
        ]

    def _guarded(self, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
        try:
            with self._lines.of(node) if self._lines else nullcontext():
                return self._evaluate(node, known)
        except Unpaddable as error:
            raise Refused(node, str(error)) from None
        except UnknownSize as error:
            raise Refused(node, f"the size of its result depends on data ({error})") from error
        except (Refused, KeyboardInterrupt):
            raise
        except Exception as error:
            raise Refused(node, f"{type(error).__name__}: {error}") from error

    def _given(self, node: fx.Node, value: Any) -> Any:
        """An operand as its placeholder has it: a region may know a number for a tensor, or a wider dtype."""
        expected = node.meta.get("val")
        return self._size_or(expected, lambda: self._typed(expected, value))

    def _plain(self, value: Any) -> Any:
        return bare(self._arena.plain(value) if isinstance(value, Padded) else value)

    def _evaluate(self, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
        args: Any = fx.map_arg(node.args, known.__getitem__)
        kwargs: Any = fx.map_arg(node.kwargs, known.__getitem__)
        is_op = isinstance(node.target, OpOverload)
        if node.target is ops.ITEM:
            return self._item(node, self._plain(args[0]))
        if isinstance(node.target, HigherOrderOperator):
            return self._checked(node, self._region(node, args))
        if is_op and not isinstance(node.meta.get("val"), (torch.Tensor, tuple, list)):
            return self._of_size(node)
        args, kwargs = (fx.node.map_aggregate(each, self._extents.number) for each in (args, kwargs))
        return self._op(node, args, kwargs) if is_op else self._of_numbers(node, args)

    def _region(self, node: fx.Node, args: Any) -> Any:
        length = self._length(node, args)
        more = {} if length is None else {"length": length}
        plain: Any = fx.node.map_aggregate(args, self._plain)
        with self._extents.within():
            return _HIGHER_ORDER[node.target](self.run, *plain, **more)

    def _length(self, node: fx.Node, args: Any) -> Array | None:
        """How many rows a scan goes over, where they are padded.

        A map computes rows that nobody reads, and a branch or a loop sees its operands with plain axes; a
        scan alone carries what it computed of one row to the next, and must stop where the rows do.
        """
        rows = args[2] if node.target is _HOP.scan else ()
        axes = [each.axes[0] for each in rows if isinstance(each, Padded) and each.is_padded(0)]
        return scalar(self._arena.true(axes[0])) if axes else None

    def _of_numbers(self, node: fx.Node, args: Any) -> Any:
        """A function of Python's: of a size again a size, where its expression is known."""
        function: Any = node.target
        return self._size_or(
            node.meta.get("val"), lambda: _FUNCTIONS.get(function, function)(*map(bare, args))
        )

    def _op(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        assert isinstance(node.target, OpOverload), node.target
        op = table().get(node.target)
        if op is None:
            raise Refused(node, "has no lowering to StableHLO")
        call = Call(self._arena, node, args, kwargs, op.lower)
        if op.pad is None:
            if call.is_reached:
                raise Refused(node, NO_RULE)
        elif unbacked.symbol_of(node) or call.is_reached:
            return self._checked(node, op.pad(call))
        return self._checked(node, call.as_it_is())

    def _item(self, node: fx.Node, x: Array) -> Any:
        """The number in a tensor; of what sizes alone decide (`int(tokens * 1.25 / experts)`) a size."""
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            self._extents.learn(value, number_of(node, x))
        return self._size_or(value, lambda: number_of(node, x))

    def _of_size(self, node: fx.Node) -> Any:
        """An op that gives a size, or nothing."""
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | int) and not isinstance(value, bool):
            return self._extents.number(value)
        if value is None:
            return None
        raise Refused(node, "gives neither tensors nor a size")

    def _size_or(self, value: Any, otherwise: Callable[[], Any]) -> Any:
        """A size, where it is known; else, and for any other value, what `otherwise` gives."""
        if isinstance(value, torch.SymInt):
            with suppress(UnknownSize):
                return self._extents.number(value)
        return otherwise()

    def _checked(self, node: fx.Node, result: Any) -> Any:
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            return self._typed(value, result)
        assert len(result) == len(value), f"{len(result)} results for {len(value)}"
        return [self._typed(one, each) for one, each in zip(value, result, strict=True)]

    def _typed(self, value: Any, result: Any) -> Any:
        """A result in the dtype of its fake value, whose shape it must have."""
        if not isinstance(value, torch.Tensor):
            return result
        found = result if isinstance(result, Padded) else Padded(result, self._arena.axes(value))
        assert len(found.axes) == value.dim(), found.axes
        out = self._arena.out(value)
        array = cast(found.array, out.dtype)
        assert tuple(array.shape) == out.shape, f"shape {tuple(array.shape)} for {out.shape}"
        return Padded(array, found.axes)


def attribute(module: fx.GraphModule, target: str) -> Any:
    """A subgraph as it is, a small tensor as a constant."""
    found = operator.attrgetter(target)(module)
    if not isinstance(found, torch.Tensor):
        return found
    array = view_numpy(found)
    return lax.full((), 0, array.dtype) + array if found.dim() else cast(found.item(), array.dtype)


def number_of(node: fx.Node, x: Array) -> Array:
    """The number of a tensor of one element, as a 0-d array in the dtype of Python's number."""
    return cast(lax.reshape(x, ()), dtype_of(scalars.dtype_of(node.meta.get("val"))))


def _extreme(of_numbers: Callable[..., Any], of_arrays: Callable[..., Any]) -> Callable[..., Any]:
    def choose(left: Any, right: Any) -> Any:
        if not is_array(left) and not is_array(right):
            return of_numbers(left, right)
        dtype = left.dtype if is_array(left) else right.dtype
        return of_arrays(cast(left, dtype), cast(right, dtype))

    return choose


def _chosen(test: Any, then: Any, other: Any) -> Any:
    if not is_array(test):
        return then if test else other
    dtype = next((side.dtype for side in (then, other) if is_array(side)), INT64)
    return lax.select(test, cast(then, dtype), cast(other, dtype))


def _converted(of_number: Callable[..., Any], dtype: Any) -> Callable[..., Any]:
    return lambda value: cast(value, dtype) if is_array(value) else of_number(value)


_FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    torch.sym_max: _extreme(max, lax.max),
    torch.sym_min: _extreme(min, lax.min),
    torch.sym_float: _converted(float, FLOAT64),
    torch.sym_int: _converted(int, INT64),
    torch.sym_ite: _chosen,
    torch.sym_not: lambda value: lax.bitwise_not(value) if is_array(value) else not value,
}


Run = Callable[[GraphModule, Sequence[Any]], list[Any]]
Values = Sequence[Any]


def _array(value: Any) -> Array:
    """A carry as an array; a number in the dtype that torch gives it."""
    return value if is_array(value) else cast(value, dtype_of(scalars.dtype_of(value)))


def _flag(value: Any) -> Array:
    return lax.reshape(cast(value, BOOL), ())


def _cond(run: Run, taken: Any, yes: GraphModule, no: GraphModule, operands: Values = ()) -> list[Any]:
    if isinstance(taken, bool):
        return run(yes if taken else no, operands)
    branches = [
        lambda *values, graph=graph: [_array(one) for one in run(graph, values)] for graph in (yes, no)
    ]
    arrays = [_array(operand) for operand in operands]
    return list(lax.cond(_flag(taken), branches[0], branches[1], *arrays))


def _while_loop(
    run: Run, test: GraphModule, body: GraphModule, carries: Values, extra: Values = ()
) -> list[Any]:
    starts = [_array(carry) for carry in carries]

    def again(state: Values) -> Array:
        return _flag(run(test, [*state, *extra])[0])

    def trip(state: Values) -> list[Array]:
        outputs = run(body, [*state, *extra])
        return [cast(new, old.dtype) for new, old in zip(outputs, state, strict=True)]

    return list(lax.while_loop(again, trip, starts))


def _scan(
    run: Run, body: GraphModule, carries: Values, xs: Values, extra: Values = (), *, length: Any = None
) -> list[Any]:
    """`length` says over how many rows, where what lies behind them is padding."""
    count = len(carries)
    active = None if length is None else lax.iota(INT32, xs[0].shape[0]) < length

    def trip(state: Values, slices: tuple[Array | None, Values]) -> tuple[list[Array], list[Array]]:
        counts, rows = slices
        outputs = [_array(one) for one in run(body, [*state, *rows, *extra])]
        kept = [cast(new, old.dtype) for new, old in zip(outputs[:count], state, strict=True)]
        if counts is not None:
            kept = [lax.select(counts, new, old) for new, old in zip(kept, state, strict=True)]
        return kept, outputs[count:]

    last, stacked = lax.scan(trip, [_array(carry) for carry in carries], (active, list(xs)))
    return [*last, *stacked]


def _associative_scan(run: Run, body: GraphModule, xs: Values, extra: Values = ()) -> list[Any]:
    if not xs[0].shape[0]:
        return list(xs)
    first = [lax.index_in_dim(x, 0, keepdims=False) for x in xs]
    rest = [lax.slice_in_dim(x, 1, None) for x in xs]
    # What a row gives is both its result and what the next row is combined with.
    scanned = _scan(lambda graph, values: 2 * run(graph, values), body, first, rest, extra)
    return [
        lax.concatenate([lax.expand_dims(row, (0,)), more], 0)
        for row, more in zip(first, scanned[len(xs) :], strict=True)
    ]


_HIGHER_ORDER: Final[Mapping[Any, Callable[..., list[Any]]]] = {
    _HOP.cond: _cond,
    _HOP.while_loop: _while_loop,
    # A scan that carries nothing.
    _HOP.map_impl: lambda run, body, xs, extra=(): _scan(run, body, (), xs, extra),
    _HOP.scan: _scan,
    _HOP.associative_scan: _associative_scan,
}
