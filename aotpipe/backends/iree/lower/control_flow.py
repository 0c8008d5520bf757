"""Structured control flow for torch-mlir's FX importer: torch's higher-order ops become `scf` ops.

`ControlFlowImporter` is a `GraphNodeImporter` that imports each subgraph into a region of an `scf` op, so
that there are no private functions, no calls, and no symbol names that two programs could share:

    cond(pred, true, false, operands)        scf.if; only the taken branch runs
    while_loop(test, body, carries, extra)   scf.while; `test` is made before it and at the end of a trip
    map_impl(f, xs, extra)                   scf.for over dim 0: y[i] = f(x[i], extra)
    scan(f, init, xs, extra)                 scf.for over dim 0: carry, y[i] = f(carry, x[i], extra)
    associative_scan(f, xs, extra)           scf.for over dim 0: y[0] = x[0], y[i] = f(y[i - 1], x[i], extra)

Inside a region values are torch values, as everywhere; whatever changes from trip to trip, or differs
between branches, crosses its border as a builtin value (`tensor<4x?xf32>`, `i64`, `f64`, `i1`). What does not
change (closures, `extra`) is used from the enclosing region as it is. Where the sides of a border know
different dims (a branch gives `[4]`, the other `[u0]`), the border knows those that all know, and
`tensor.cast` bridges.

What no needed result depends on is not imported: results of an op, carries of a loop, nodes of a subgraph.
The subgraphs must be functional. What has no lowering raises `ControlFlowError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from iree.compiler.dialects import arith, scf
from iree.compiler.ir import InsertionPoint, IntegerType, Location, Type, Value
from torch import fx

from aotpipe.backends.iree.lower import liveness
from aotpipe.backends.iree.lower import region_borders as border
from aotpipe.backends.iree.lower.host_scalars import hosted_carries, number_dtype
from aotpipe.backends.iree.lower.region_borders import ControlFlowError, Slots
from aotpipe.backends.iree.lower.regions import RegionImporter
from aotpipe.backends.iree.tuning import recurrences
from aotpipe.passes import hops
from aotpipe.passes.scalars import value_of

Trip = Callable[[Slots, list[Value]], Slots]


_MOST_TOGETHER: Final = 10
_MOST_NODES: Final = 800
"""Nodes of all trips that stand in a loop one after another: each takes the compiler some milliseconds."""


class ControlFlowImporter(RegionImporter):
    """Imports the structured higher-order ops; every other node as its base does."""

    def _import_hop_cond(self, loc: Location, node: fx.Node, _hop: object) -> None:
        pred: Any
        operands: Any
        pred, *_, operands = node.args
        bodies = hops.call_of(node).subgraphs
        with loc:
            values = self._operands(loc, operands)
            used = liveness.used_results(node, self.needed)
            if isinstance(pred, bool):
                self._bind_results(node, self._inline(bodies[0 if pred else 1], values, used))
                return
            types = self._slot_types(node, used, *map(liveness.fake_outputs, bodies))
            is_number = number_dtype(pred.meta["val"]) is not None
            taken = self.numbers(pred) if is_number else border.to_i1(self._import_argument(loc, pred))
            known = [self._free_numbers(node, body) for body in bodies]
            branch = scf.IfOp(taken, [border.packed_type(t) for t in border.present(types)], has_else=True)
            blocks = (branch.then_block, branch.else_block)
            for block, body, sources in zip(blocks, bodies, known, strict=True):
                with InsertionPoint(block):
                    scf.YieldOp(self._leave(self._inline(body, values, used, sources), types))
            self._bind_results(node, self._enter(branch.results, types, node.meta["val"]))

    def _import_hop_while_loop(self, loc: Location, node: fx.Node, _hop: object) -> None:
        if node.kwargs.get("mutated_arg_indices"):
            raise ControlFlowError("while_loop mutates its inputs")
        test, body = hops.call_of(node).subgraphs
        starts: Any = node.args[2]
        with loc:
            inits, extra = (self._operands(loc, args) for args in node.args[2:])
            used = liveness.used_results(node, self.needed)
            live = liveness.live_carries(test, body, range(len(inits)), used)
            sides = *map(liveness.fake_inputs, (test, body)), liveness.fake_outputs(body)
            types = self._slot_types(node, live, *sides, inits=inits)
            hosted = hosted_carries(node) & live
            for position in hosted:
                inits[position] = self.numbers(starts[position])
                types[position] = inits[position].type
            known_to_test = self._free_numbers(node, test, hosted, {0})
            known_to_body = self._free_numbers(node, body, hosted, hosted)
            carries = border.Carries(types)

            def handed_on(values: Slots, crossed: Sequence[Value] = ()) -> list[Value]:
                """Whether there is another trip, then the carries, as they cross."""
                owned = carries.own(values, crossed)
                (again,) = self._inline(test, [*owned, *extra], {0}, known_to_test, {0})
                return border.pack([border.to_i1(again), *border.present(owned)])

            first = handed_on(inits)
            packed = [value.type for value in first]
            loop = scf.WhileOp(packed, first)
            before, after = (region.blocks.append(*packed) for region in (loop.before, loop.after))
            with InsertionPoint(before):
                flag = border.unpack(before.arguments[0], IntegerType.get_signless(1), list)
                scf.ConditionOp(flag, before.arguments)
            with InsertionPoint(after):
                crossed = list(after.arguments)[1:]
                given = self._enter(crossed, types, liveness.fake_inputs(body))
                outputs = self._inline(body, [*given, *extra], live, known_to_body, hosted)
                scf.YieldOp(handed_on(outputs, crossed))
            results = self._enter(list(loop.results)[1:], types, node.meta["val"])
            self._bind_results(node, results, hosted)

    def _import_hop_scan(self, loc: Location, node: fx.Node, _hop: object) -> None:
        """A loop over rows, with carries or, as a map, without."""
        call = hops.call_of(node)
        (body,) = call.subgraphs
        *starts, rows, read = map(call.operands, call.layout.operands)
        with loc:
            carried = starts[0] if starts else ()
            inits, xs, extra = (self._operands(loc, each) for each in (carried, rows, read))
            used = liveness.used_results(node, self.needed)
            live = liveness.live_carries(None, body, range(len(inits)), used)
            wanted = used | live

            def trip(carries: Slots, rows: list[Value]) -> Slots:
                return self._inline(body, [*carries, *rows, *extra], wanted)

            sides = liveness.fake_inputs(body), liveness.fake_outputs(body)
            types = self._slot_types(node, live, *sides, inits=inits)
            results = node.meta["val"]
            stacked = [results[at] if at in used else None for at in range(len(inits), len(results))]
            many = 1 if recurrences.is_taken(node) else _together(body, value_of(rows[0]).shape[0])
            found = self._for_each(xs, inits, types, body, stacked, trip, many=many)
            self._bind_results(node, found)

    _import_hop_map_impl = _import_hop_scan

    def _import_hop_associative_scan(self, loc: Location, node: fx.Node, _hop: object) -> None:
        (body,) = hops.call_of(node).subgraphs
        with loc:
            xs, extra = (self._operands(loc, args) for args in node.args[1:])
            every = set(range(len(xs)))
            sides = map(self._types, (liveness.fake_outputs(body), liveness.fake_inputs(body)))
            types = border.present(border.join(every, *sides))

            def trip(carries: Slots, rows: list[Value]) -> Slots:
                outputs = border.convert_all(self._inline(body, [*carries, *rows, *extra], every), types)
                return [*outputs, *outputs]

            sources = [border.to_builtin(x) for x in xs]
            firsts = [border.extract_row(source, border.index_constant(0)) for source in sources]
            inits = border.convert_all(firsts, types)
            results = self._for_each(sources, inits, types, body, node.meta["val"], trip, seeded=True)
            self._bind_results(node, results[len(xs) :])

    def _for_each(
        self,
        xs: Sequence[Value],
        inits: Sequence[Value],
        types: Sequence[Type | None],
        body: fx.GraphModule,
        stacked: Sequence[Any],
        trip: Trip,
        *,
        seeded: bool = False,
        many: int = 1,
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
            many: How many trips stand in the loop one after another; it divides the size of dim 0.

        Returns:
            The last carries, then the stacked outputs.
        """
        sources = [border.to_builtin(x) for x in xs]
        stack_types = [None if val is None else border.builtin_type(self._type(val)) for val in stacked]
        stacks = [
            None if stack is None else self._empty(val.shape, stack)
            for val, stack in zip(stacked, stack_types, strict=True)
        ]
        if seeded:
            stacks = [
                border.insert_row(row, stack, border.index_constant(0))
                for row, stack in zip(inits, stacks, strict=True)
            ]
        slots = [*types, *stack_types]
        vals = [*liveness.fake_inputs(body)[: len(inits)], *stacked]
        carries = border.Carries(types)
        starts = [*border.pack(border.present(carries.own(inits))), *self._leave(stacks, stack_types)]
        first = border.index_constant(int(seeded))
        loop = scf.ForOp(first, border.dim_size(sources[0], 0), border.index_constant(many), starts)
        with InsertionPoint(loop.body):
            index, *arguments = loop.body.arguments
            outputs = self._enter(arguments, slots, vals)
            for number in range(many):
                at = arith.addi(index, border.index_constant(number)) if number else index
                last, outputs = (
                    outputs,
                    trip(outputs[: len(inits)], [border.extract_row(x, at) for x in sources]),
                )
                for position in range(len(inits), len(slots)):
                    stack = last[position]
                    if stack is not None:
                        outputs[position] = border.insert_row(outputs[position], stack, at)
            owned = carries.own(outputs[: len(inits)], arguments)
            grown = border.present(outputs[len(inits) :])
            scf.YieldOp([*border.pack(border.present(owned)), *map(border.hand_on, grown)])
        return self._enter(loop.results, slots, vals)


def _together(body: fx.GraphModule, length: Any) -> int:
    """How many trips of a scan an iteration of its loop has: the host waits for the carries of each."""
    tensors = [each for each in liveness.fake_inputs(body) if isinstance(each, torch.Tensor)]
    if not all(
        isinstance(size, int) for size in (length, *(size for each in tensors for size in each.shape))
    ):
        return 1
    counts = [count for count in range(1, _MOST_TOGETHER + 1) if length % count == 0]
    return max(count for count in counts if count == 1 or count * len(body.graph.nodes) <= _MOST_NODES)
