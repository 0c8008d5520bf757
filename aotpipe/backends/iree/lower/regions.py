"""Regions of an `scf` op, imported from subgraphs: what enters them, what leaves, and the sizes they know.

`RegionImporter` imports the nodes of one graph into one block. `_inline` makes an importer of the same class
for a subgraph, at the end of a block within; `_leave` and `_enter` take values over a region's border, and
`host_scalars` has the whole numbers that the host computes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial, reduce
from types import MappingProxyType
from typing import Any, Final

import sympy
import torch
from iree.compiler.dialects import arith, tensor
from iree.compiler.extras.fx_importer import GraphNodeImporter
from iree.compiler.ir import IndexType, InsertionPoint, IntegerType, Location, Type, Value
from torch import fx
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, PythonMod

from aotpipe.backends.iree.lower import region_borders as border
from aotpipe.backends.iree.lower.host_scalars import Numbers, filled, number_dtype, sources_of
from aotpipe.backends.iree.lower.liveness import needed_nodes
from aotpipe.backends.iree.lower.region_borders import ControlFlowError, Slots
from aotpipe.passes import hops
from aotpipe.passes.ops import ITEM

Sources = Mapping[fx.Node, Value]
"""The numbers of placeholders."""


class RegionImporter(GraphNodeImporter):  # type: ignore[misc]
    """Imports a graph into a block, and subgraphs into the regions in it."""

    outer: RegionImporter | None = None
    """The importer of the enclosing region: its values dominate this one's."""
    needed: Collection[fx.Node] = ()
    """The nodes of this graph that are imported."""
    numbers: Numbers
    """The numbers of this graph that the host has or reads."""

    def import_needed(
        self, module: fx.GraphModule, wanted: Collection[int], sources: Sources = MappingProxyType({})
    ) -> Slots:
        """Import what some outputs of a graph depend on, and give them; its placeholders are bound.

        `wanted` are the positions of the outputs, `sources` the placeholders whose numbers the host knows.
        """
        self.numbers = Numbers(module, sources, self.resolve_node_value, border.placed)
        self.needed = needed_nodes(module, wanted)
        self.import_nodes([n for n in module.graph.nodes if n in self.needed], skip_placeholders_outputs=True)
        with InsertionPoint(self._b):
            return [
                self._import_argument(Location.current, output)
                if position in wanted and output is not None
                else None
                for position, output in enumerate(hops.output_values(module))
            ]

    def _free_numbers(
        self, node: fx.Node, body: fx.GraphModule, hosted: Collection[int] = (), wanted: Collection[int] = ()
    ) -> Sources:
        """The numbers among the read-only inputs of a subgraph that the host has at hand, or needs inside.

        `hosted` are the positions of other inputs that are numbers, `wanted` of outputs for which the host
        needs numbers.
        """
        inputs, outputs = hops.placeholders(body), hops.output_values(body)
        free = {
            inner: outer
            for inner, outer in hops.call_of(node).read_only(body)
            if isinstance(outer, fx.Node) and number_dtype(inner.meta["val"]) is not None
        }
        candidates = {*free, *(inputs[position] for position in hosted)}
        read = sources_of(body, [outputs[position] for position in wanted], candidates)
        return {
            inner: self.numbers(outer)
            for inner, outer in free.items()
            if inner in read or outer in self.numbers
        }

    def _inline(
        self,
        body: fx.GraphModule,
        operands: Slots,
        wanted: Collection[int],
        sources: Sources = MappingProxyType({}),
        hosted: Collection[int] = (),
    ) -> Slots:
        """Import a subgraph at the insertion point, which is at a block's end; give the wanted outputs.

        A number stands for a 0-d tensor among the operands where the host has it; `sources` are the numbers
        of other inputs. The outputs `hosted` are given as numbers where they are 0-d.
        """
        inner = type(self)(self.fx_importer, self._c, self._cc, InsertionPoint.current.block)
        inner.outer = self
        known = dict(sources)
        for placeholder, operand in zip(hops.placeholders(body), operands, strict=True):
            if operand is None:
                continue
            val = placeholder.meta["val"]
            if isinstance(val, torch.Tensor) and isinstance(operand.type, IntegerType):
                known[placeholder] = operand
                operand = filled(operand)
            inner.bind_node_value(placeholder, border.convert(operand, self._type(val)))
        outputs = inner.import_needed(body, wanted, known)
        for position in hosted:
            node = hops.output_values(body)[position]
            if isinstance(node, fx.Node) and number_dtype(node.meta["val"]) is not None:
                outputs[position] = inner.numbers(node)
        return outputs

    def _slot_types(
        self,
        node: fx.Node,
        kept: Collection[int],
        *sides: Sequence[Any],
        inits: Sequence[Value] | None = None,
    ) -> list[Type | None]:
        """The builtin types of an op's results, or as many of them as there are inits of a loop's.

        `kept` are the positions to give a type to, `sides` the fake values on the border's other sides; what
        comes after the results there is ignored.
        """
        results = node.meta["val"] if inits is None else node.meta["val"][: len(inits)]
        rows = [self._types(side[: len(results)]) for side in (results, *sides)]
        starts = [] if inits is None else [[init.type for init in inits]]
        return border.join(kept, *rows, *starts)

    def _enter(self, values: Iterable[Value], types: Sequence[Type | None], vals: Sequence[Any]) -> Slots:
        """The builtin values of packed ones; `vals` are their fake values on this side."""
        rest = iter(values)
        return [
            None if wanted is None else border.unpack(next(rest), wanted, partial(self._known_dims, val))
            for wanted, val in zip(types, vals, strict=False)
        ]

    def _known_dims(self, val: Any) -> list[Value | None]:
        return [
            self.known_size(dim.node.expr) if isinstance(dim, torch.SymInt) else None for dim in val.shape
        ]

    def _operands(self, loc: Location, arguments: Any) -> list[Value]:
        return [self._import_argument(loc, argument) for argument in arguments]

    def _bind_results(
        self, node: fx.Node, values: Sequence[Value | None], hosted: Collection[int] = ()
    ) -> None:
        self._multi_result_nodes.add(node)
        for index, (value, val) in enumerate(zip(values, node.meta["val"], strict=True)):
            if value is None:
                continue
            if index in hosted:
                for user in node.users:
                    if user.args[1:] == (index,):
                        self.numbers.bind(user, value)
                value = filled(value)
            self.bind_node_value(node, border.convert(value, self._type(val)), index)

    def _import_torch_op_overload(self, loc: Location, node: fx.Node, target: Any = None) -> None:
        """Import an op; a number that the host has is not read from its tensor."""
        val = node.meta.get("val")
        if node.target is ITEM and node.args[0] in self.numbers and isinstance(val, torch.SymInt):
            with loc, InsertionPoint(self._b):
                number = self.numbers(node.args[0], torch.int64)
                self.bind_node_value(node, border.convert(number, self._type(val)))
            return
        super()._import_torch_op_overload(loc, node, target)

    def _type(self, val: Any) -> Type:
        if isinstance(val, torch.Tensor):
            return self._cc.get_vtensor_type(val.size(), val.dtype)
        return self._cc.value_info_to_type(val)

    def _types(self, vals: Iterable[Any]) -> list[Type | None]:
        return [None if val is None else self._type(val) for val in vals]

    def _empty(self, shape: Sequence[int | torch.SymInt], wanted: Type) -> Value:
        sizes = [dim if isinstance(dim, int) else self.size(dim.node.expr) for dim in shape]
        return border.convert(tensor.empty(sizes, wanted.element_type), wanted)

    def size(self, expr: sympy.Expr) -> Value:
        """Compute a symbolic size, as an index, from the values that are at hand."""
        known = self.known_size(expr)
        if known is not None:
            return known
        if isinstance(expr, sympy.Integer):
            return border.index_constant(int(expr))
        if type(expr) not in _SIZE_OPS:
            raise ControlFlowError(f"the size {expr} of a stacked output is not known before the loop")
        return reduce(_SIZE_OPS[type(expr)], map(self.size, expr.args))

    def known_size(self, expr: sympy.Expr) -> Value | None:
        """The size where a value at hand is that number or has it as a dim."""
        for (node, position), value in self._v.items():
            val = node.meta.get("val")
            val = val[position] if isinstance(val, (tuple, list)) else val
            if isinstance(val, torch.SymInt) and val.node.expr == expr:
                return arith.index_cast(IndexType.get(), border.to_builtin(value))
            if isinstance(val, torch.Tensor):
                for dim, size in enumerate(val.shape):
                    if isinstance(size, torch.SymInt) and size.node.expr == expr:
                        return border.dim_size(border.to_builtin(value), dim)
        return self.outer.known_size(expr) if self.outer else None

    def _leave(self, values: Slots, types: Sequence[Type | None]) -> list[Value]:
        return border.pack(map(border.in_own_buffer, border.convert_all(values, types)))


# Sizes are not negative, so that floor and truncation agree.
_SIZE_OPS: Final[dict[type, Callable[[Value, Value], Value]]] = {
    sympy.Add: arith.addi,
    sympy.Mul: arith.muli,
    FloorDiv: arith.divsi,
    Mod: arith.remsi,
    PythonMod: arith.remsi,
    Max: arith.maxsi,
    Min: arith.minsi,
}
