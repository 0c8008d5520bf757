"""Structured control flow for torch-mlir's FX importer: torch's higher-order ops become `scf` ops.

`ControlFlowImporter` is a `GraphNodeImporter` that imports each subgraph into a region of an `scf` op, so
that there are no private functions, no calls, and no symbol names that two programs could share:

    cond(pred, true, false, operands)        scf.if; only the taken branch runs
    while_loop(test, body, carries, extra)   scf.while; `test` is its before region, zero trips give `carries`
    map_impl(f, xs, extra)                   scf.for over dim 0: y[i] = f(x[i], extra)
    scan(f, init, xs, extra)                 scf.for over dim 0: carry, y[i] = f(carry, x[i], extra)
    associative_scan(f, xs, extra)           scf.for over dim 0: y[0] = x[0], y[i] = f(y[i - 1], x[i], extra)
    invoke_subgraph(graph, name, *operands)  the subgraph's ops in place

Inside a region values are torch values, as everywhere; whatever changes from trip to trip, or differs
between branches, crosses its border as a builtin value (`tensor<4x?xf32>`, `i64`, `f64`, `i1`). What does not
change (closures, `extra`) is used from the enclosing region as it is. Where the sides of a border know
different dims (a branch gives `[4]`, the other `[u0]`), the border knows those that all know, and
`tensor.cast` bridges.

What no needed result depends on is not imported: results of an op, carries of a loop, nodes of a subgraph.
The subgraphs must be functional. What has no lowering raises `ControlFlowError`. The modules `borders`,
`liveness` and this one need torch, the importer and the MLIR bindings, nothing else.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial, reduce
from typing import Any, Final

import sympy
import torch
from iree.compiler.dialects import arith, scf, tensor
from iree.compiler.extras.fx_importer import GraphNodeImporter
from iree.compiler.ir import IndexType, InsertionPoint, Location, Operation, Type, Value
from torch import fx
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, PythonMod

from aotpipe.backends.iree.borders import (
    Border,
    ControlFlowError,
    Dims,
    OpenBorder,
    builtin_type,
    convert,
    convert_all,
    dim_size,
    extract_row,
    index_constant,
    insert_row,
    join,
    present,
    to_i1,
)
from aotpipe.backends.iree.liveness import (
    live_carries,
    needed_nodes,
    output_args,
    placeholders,
    used_results,
)

Slots = list[Value | None]
"""Values by position; None where there is none or where it is not needed."""
Unpack = Callable[[Value, Type, Dims], Value]
Trip = Callable[[Slots, list[Value]], Slots]


class ControlFlowImporter(GraphNodeImporter):  # type: ignore[misc]
    """Imports the structured higher-order ops; every other node as its base does."""

    outer: ControlFlowImporter | None = None
    """The importer of the enclosing region: its values dominate this one's."""
    border: Border = OpenBorder()
    """How tensors cross the border of a region: a compiler may need a way of its own."""
    needed: Collection[fx.Node] = ()
    """The nodes of this graph that are imported."""

    def import_needed(self, graph: fx.Graph, wanted: Collection[int]) -> Slots:
        """Import what some outputs of a graph depend on, and give them; its placeholders are bound."""
        self.needed = needed_nodes(graph, wanted)
        self.import_nodes([n for n in graph.nodes if n in self.needed], skip_placeholders_outputs=True)
        with InsertionPoint(self._b):
            return [
                self._import_argument(Location.current, output)
                if position in wanted and output is not None
                else None
                for position, output in enumerate(output_args(graph))
            ]

    def _import_hop_cond(self, loc: Location, node: fx.Node, _hop: object) -> None:
        pred, *names, operands = node.args
        graphs = [_subgraph(node, name) for name in names]
        with loc:
            values = self._operands(loc, operands)
            used = used_results(node, self.needed)
            if isinstance(pred, bool):
                self._bind_results(node, self._inline(graphs[0 if pred else 1], values, used))
                return
            types = self._slot_types(node, used, *map(_outputs, graphs))
            border = self.border
            taken = to_i1(self._import_argument(loc, pred))
            branch = scf.IfOp(taken, [border.packed_type(t) for t in present(types)], has_else=True)
            for block, graph in zip((branch.then_block, branch.else_block), graphs, strict=True):
                with InsertionPoint(block):
                    scf.YieldOp(_leave(border, self._inline(graph, values, used), types))
            self._bind_results(node, self._enter(border.unpack, branch.results, types, _results(node)))

    def _import_hop_while_loop(self, loc: Location, node: fx.Node, _hop: object) -> None:
        if node.kwargs.get("mutated_arg_indices"):
            raise ControlFlowError("while_loop mutates its inputs")
        test, body = (_subgraph(node, name) for name in node.args[:2])
        with loc:
            inits, extra = (self._operands(loc, args) for args in node.args[2:])
            live = live_carries(test, body, range(len(inits)), used_results(node, self.needed))
            types = self._slot_types(node, live, _inputs(test), _inputs(body), _outputs(body), inits=inits)
            border = self.border
            packed = [border.packed_type(carried) for carried in present(types)]
            loop = scf.WhileOp(packed, _leave(border, _select(inits, live), types))
            before, after = (region.blocks.append(*packed) for region in (loop.before, loop.after))
            with InsertionPoint(before):
                carries = self._enter(border.peek, before.arguments, types, _inputs(test))
                (again,) = self._inline(test, [*carries, *extra], {0})
                scf.ConditionOp(to_i1(again), before.arguments)
            with InsertionPoint(after):
                carries = self._enter(border.unpack, after.arguments, types, _inputs(body))
                outputs = self._inline(body, [*carries, *extra], live)
                scf.YieldOp(_leave(border, outputs, types))
            self._bind_results(node, self._enter(border.unpack, loop.results, types, _results(node)))

    def _import_hop_map_impl(self, loc: Location, node: fx.Node, _hop: object) -> None:
        body = _subgraph(node, node.args[0])
        with loc:
            xs, extra = (self._operands(loc, args) for args in node.args[1:])
            used = used_results(node, self.needed)

            def trip(_carries: Slots, rows: list[Value]) -> Slots:
                return self._inline(body, [*rows, *extra], used)

            self._bind_results(node, self._for_each(xs, [], [], body, _select(_results(node), used), trip))

    def _import_hop_scan(self, loc: Location, node: fx.Node, _hop: object) -> None:
        body = _subgraph(node, node.args[0])
        with loc:
            inits, xs, extra = (self._operands(loc, args) for args in node.args[1:])
            used = used_results(node, self.needed)
            live = live_carries(None, body, range(len(inits)), used)
            wanted = used | live

            def trip(carries: Slots, rows: list[Value]) -> Slots:
                return self._inline(body, [*carries, *rows, *extra], wanted)

            types = self._slot_types(node, live, _inputs(body), _outputs(body), inits=inits)
            stacked = _select(_results(node), used)[len(inits) :]
            self._bind_results(node, self._for_each(xs, inits, types, body, stacked, trip))

    def _import_hop_associative_scan(self, loc: Location, node: fx.Node, _hop: object) -> None:
        body = _subgraph(node, node.args[0])
        with loc:
            xs, extra = (self._operands(loc, args) for args in node.args[1:])
            every = set(range(len(xs)))
            types = present(join(every, self._types(_outputs(body)), self._types(_inputs(body))))

            def trip(carries: Slots, rows: list[Value]) -> Slots:
                outputs = convert_all(self._inline(body, [*carries, *rows, *extra], every), types)
                return [*outputs, *outputs]

            sources = [convert(x, builtin_type(x.type)) for x in xs]
            rows = convert_all([extract_row(source, index_constant(0)) for source in sources], types)
            results = self._for_each(sources, rows, types, body, _results(node), trip, seeded=True)
            self._bind_results(node, results[len(xs) :])

    def _import_hop_invoke_subgraph(self, loc: Location, node: fx.Node, _hop: object) -> None:
        name, _identifier, *operands = node.args
        with loc:
            used = used_results(node, self.needed)
            self._bind_results(node, self._inline(_subgraph(node, name), self._operands(loc, operands), used))

    def _for_each(
        self,
        xs: Sequence[Value],
        inits: Sequence[Value],
        types: Sequence[Type | None],
        body: fx.Graph,
        stacked: Sequence[Any],
        trip: Trip,
        *,
        seeded: bool = False,
    ) -> Slots:
        """Emit a loop over dim 0 of `xs` that carries values and stacks outputs along a new dim 0.

        Args:
            xs: At least one; all have the same size in dim 0.
            inits: What the carries start as.
            types: The carries' types, None for one that is not needed.
            body: Its first inputs are the carries.
            stacked: The fake values of the stacked outputs, None for one that is not needed.
            trip: Emits one trip from the carries and a row of each of `xs`; gives the next carries, then the
                outputs.
            seeded: Whether the first row of each output is its carry's init, so that no trip makes it.

        Returns:
            The last carries, then the stacked outputs.
        """
        sources = [convert(x, builtin_type(x.type)) for x in xs]
        stack_types = [None if val is None else builtin_type(self._type(val)) for val in stacked]
        stacks = [
            None if stack is None else self._empty(val.shape, stack)
            for val, stack in zip(stacked, stack_types, strict=True)
        ]
        if seeded:
            stacks = [
                insert_row(row, stack, index_constant(0)) for row, stack in zip(inits, stacks, strict=True)
            ]
        slots = [*types, *stack_types]
        vals = [*_inputs(body)[: len(inits)], *stacked]
        border = self.border
        starts = _leave(border, [*_select_like(inits, types), *stacks], slots)
        first = index_constant(int(seeded))
        loop = scf.ForOp(first, dim_size(sources[0], 0), index_constant(1), starts)
        with InsertionPoint(loop.body):
            index, *arguments = loop.body.arguments
            last = self._enter(border.unpack, arguments, slots, vals)
            rows = [extract_row(source, index) for source in sources]
            outputs = trip(last[: len(inits)], rows)
            for position in range(len(inits), len(slots)):
                stack = last[position]
                if stack is not None:
                    outputs[position] = insert_row(outputs[position], stack, index)
            carries = _leave(border, outputs[: len(inits)], types)
            grown = present(outputs[len(inits) :])
            scf.YieldOp([*carries, *map(border.hand_on, grown)])
        return self._enter(border.unpack, loop.results, slots, vals)

    def _inline(self, graph: fx.Graph, operands: Slots, wanted: Collection[int]) -> Slots:
        """Import a subgraph at the insertion point, which is at a block's end; give the wanted outputs."""
        inner = type(self)(self.fx_importer, self._c, self._cc, InsertionPoint.current.block)
        inner.outer = self
        for placeholder, operand in zip(placeholders(graph), operands, strict=True):
            if operand is not None:
                inner.bind_node_value(placeholder, convert(operand, self._type(placeholder.meta["val"])))
        return inner.import_needed(graph, wanted)

    def _slot_types(
        self, node: fx.Node, kept: Collection[int], *sides: Sequence[Any], inits: Sequence[Value] = ()
    ) -> list[Type | None]:
        """The builtin types of an op's results, or as many of them as there are inits.

        Args:
            node: The op.
            kept: The positions to give a type to.
            sides: The fake values on the border's other sides; what comes after the results is ignored.
            inits: What a loop's results start as.
        """
        results = _results(node)[: len(inits)] if inits else _results(node)
        rows = [self._types(side[: len(results)]) for side in sides]
        if inits:
            rows.append([init.type for init in inits])
        return join(kept, self._types(results), *rows)

    def _enter(
        self, unpack: Unpack, values: Iterable[Value], types: Sequence[Type | None], vals: Sequence[Any]
    ) -> Slots:
        """The builtin values of packed ones; `vals` are their fake values on this side."""
        rest = iter(values)
        return [
            None if wanted is None else unpack(next(rest), wanted, partial(self._known_dims, val))
            for wanted, val in zip(types, vals, strict=False)
        ]

    def _known_dims(self, val: Any) -> list[Value | None]:
        return [
            self.known_size(dim.node.expr) if isinstance(dim, torch.SymInt) else None for dim in val.shape
        ]

    def _operands(self, loc: Location, arguments: Any) -> list[Value]:
        return [self._import_argument(loc, argument) for argument in arguments]

    def _bind_results(self, node: fx.Node, values: Sequence[Value | None]) -> None:
        self._multi_result_nodes.add(node)
        for index, (value, val) in enumerate(zip(values, _results(node), strict=True)):
            if value is not None:
                self.bind_node_value(node, convert(value, self._type(val)), index)

    def _type(self, val: Any) -> Type:
        """The torch type of a fake value or a constant."""
        if isinstance(val, torch.Tensor):
            return self._cc.get_vtensor_type(val.size(), val.dtype)
        return self._cc.value_info_to_type(val)

    def _types(self, vals: Iterable[Any]) -> list[Type | None]:
        return [None if val is None else self._type(val) for val in vals]

    def _empty(self, shape: Sequence[int | torch.SymInt], wanted: Type) -> Value:
        sizes = [dim if isinstance(dim, int) else self.size(dim.node.expr) for dim in shape]
        return convert(tensor.EmptyOp(sizes, wanted.element_type).result, wanted)

    def size(self, expr: sympy.Expr) -> Value:
        """Compute a symbolic size, as an index, from the values that are at hand."""
        known = self.known_size(expr)
        if known is not None:
            return known
        if isinstance(expr, sympy.Integer):
            return index_constant(int(expr))
        if type(expr) not in _SIZE_OPS:
            raise ControlFlowError(f"the size {expr} of a stacked output is not known before the loop")
        emit = _SIZE_OPS[type(expr)]
        return reduce(lambda left, right: emit(left, right).result, map(self.size, expr.args))

    def known_size(self, expr: sympy.Expr) -> Value | None:
        """The size where a value at hand is that number or has it as a dim."""
        for (node, position), value in self._v.items():
            val = node.meta.get("val")
            val = val[position] if isinstance(val, (tuple, list)) else val
            if isinstance(val, torch.SymInt) and val.node.expr == expr:
                return arith.IndexCastOp(IndexType.get(), convert(value, builtin_type(value.type))).result
            if isinstance(val, torch.Tensor):
                for dim, size in enumerate(val.shape):
                    if isinstance(size, torch.SymInt) and size.node.expr == expr:
                        return dim_size(convert(value, builtin_type(value.type)), dim)
        return self.outer.known_size(expr) if self.outer else None


# Sizes are not negative, so that floor and truncation agree.
_SIZE_OPS: Final[dict[type, Callable[[Value, Value], Operation]]] = {
    sympy.Add: arith.AddIOp,
    sympy.Mul: arith.MulIOp,
    FloorDiv: arith.DivSIOp,
    Mod: arith.RemSIOp,
    PythonMod: arith.RemSIOp,
    Max: arith.MaxSIOp,
    Min: arith.MinSIOp,
}


def _subgraph(node: fx.Node, name: Any) -> fx.Graph:
    module = operator.attrgetter(name.target)(node.graph.owning_module)
    assert isinstance(module, fx.GraphModule), f"{name.target} is no graph"
    return module.graph


def _outputs(graph: fx.Graph) -> list[Any]:
    return [arg.meta["val"] if isinstance(arg, fx.Node) else arg for arg in output_args(graph)]


def _inputs(graph: fx.Graph) -> list[Any]:
    return [node.meta["val"] for node in placeholders(graph)]


def _results(node: fx.Node) -> list[Any]:
    return list(node.meta["val"])


def _select(items: Sequence[Any], kept: Collection[int]) -> list[Any]:
    """The items at the kept positions, None elsewhere."""
    return [item if position in kept else None for position, item in enumerate(items)]


def _leave(border: Border, values: Slots, types: Sequence[Type | None]) -> list[Value]:
    """Pack the values that are there."""
    return border.pack(convert_all(values, types))


def _select_like(items: Sequence[Any], types: Sequence[Type | None]) -> list[Any]:
    return [item if wanted is not None else None for item, wanted in zip(items, types, strict=True)]
