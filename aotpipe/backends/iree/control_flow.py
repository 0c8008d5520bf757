"""Structured control flow for torch-mlir's FX importer: torch's higher-order ops become `scf` ops.

`ControlFlowImporter` is a `GraphNodeImporter` that imports each subgraph into a region of an `scf` op, so
that there are no private functions, no calls, and no symbol names that two programs could share:

    cond(pred, true, false, operands)        scf.if; only the taken branch runs
    while_loop(test, body, carries, extra)   scf.while; `test` is its before region, zero trips give `carries`
    map_impl(f, xs, extra)                   scf.for over dim 0: y[i] = f(x[i], extra)
    scan(f, init, xs, extra)                 scf.for over dim 0: carry, y[i] = f(carry, x[i], extra)
    associative_scan(f, xs, extra)           scf.for over dim 0: y[0] = x[0], y[i] = f(y[i - 1], x[i], extra)
    invoke_subgraph(graph, name, *operands)  the subgraph's ops in place

Inside a region values are torch values, as everywhere; whatever changes from trip to trip, or differs between
branches, crosses its border as a builtin value (`tensor<4x?xf32>`, `i64`, `f64`, `i1`). What does not change
(closures, `extra`) is used from the enclosing region as it is. Where the two sides of a border know different
dims (a branch gives `[4]`, the other `[u0]`), the border knows those that all know, and `tensor.cast` bridges.

The subgraphs must be functional. What has no lowering raises `ControlFlowError`. The module needs torch,
the importer and the MLIR bindings, nothing else.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Final

import sympy
import torch
from iree.compiler.dialects import arith, scf, tensor
from iree.compiler.extras.fx_importer import GraphNodeImporter
from iree.compiler.ir import (
    IndexType,
    InsertionPoint,
    IntegerAttr,
    IntegerType,
    Location,
    Operation,
    RankedTensorType,
    ShapedType,
    Type,
    Value,
)
from torch import fx
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, PythonMod

Outputs = list[Value | None]
Trip = Callable[[Value, Sequence[Value], Sequence[Value]], tuple[Outputs, Outputs]]

_VTENSOR: Final = re.compile(r"!torch\.vtensor<\[(?P<dims>[^\]]*)\],(?P<element>.+)>")
_SIGN: Final = re.compile(r"\b[su]i(?=\d)")
# A torch scalar's builtin type.
_SCALARS: Final = {"!torch.int": "i64", "!torch.float": "f64", "!torch.bool": "i1"}
_DYNAMIC: Final = ShapedType.get_dynamic_size()


class ControlFlowError(NotImplementedError):
    """A higher-order op in a form that has no lowering."""


class ControlFlowImporter(GraphNodeImporter):  # type: ignore[misc]
    """Imports the structured higher-order ops; every other node as its base does."""

    outer: ControlFlowImporter | None = None
    """The importer of the enclosing region: its values dominate this one's."""

    def _import_hop_cond(self, loc: Location, node: fx.Node, hop: object) -> None:
        pred, *names, operands = node.args
        graphs = [_subgraph(node, name) for name in names]
        with loc:
            values = self._operands(loc, operands)
            if isinstance(pred, bool):
                self._bind_results(node, self._inline(loc, graphs[0 if pred else 1], values))
                return
            types = _join(*(self._types(_outputs(graph)) for graph in graphs), self._types(_results(node)))
            branch = scf.IfOp(_to_i1(self._import_argument(loc, pred)), _present(types), has_else=True)
            for block, graph in zip((branch.then_block, branch.else_block), graphs, strict=True):
                with InsertionPoint(block):
                    scf.YieldOp(_convert_all(self._inline(loc, graph, values), types))
            results = iter(branch.results)
            self._bind_results(node, [None if wanted is None else next(results) for wanted in types])

    def _import_hop_while_loop(self, loc: Location, node: fx.Node, hop: object) -> None:
        if node.kwargs.get("mutated_arg_indices"):
            raise ControlFlowError("while_loop mutates its inputs")
        test, body = (_subgraph(node, name) for name in node.args[:2])
        with loc:
            inits, extra = (self._operands(loc, args) for args in node.args[2:])
            carried = slice(len(inits))
            types = _join(
                [init.type for init in inits],
                self._types(_inputs(test)[carried]),
                self._types(_inputs(body)[carried]),
                self._types(_outputs(body)),
                self._types(_results(node)),
            )
            loop = scf.WhileOp(types, _convert_all(inits, types))
            before, after = (region.blocks.append(*types) for region in (loop.before, loop.after))
            with InsertionPoint(before):
                (again,) = self._inline(loc, test, [*before.arguments, *extra])
                scf.ConditionOp(_to_i1(again), before.arguments)
            with InsertionPoint(after):
                outputs = self._inline(loc, body, [*after.arguments, *extra])
                scf.YieldOp(self._visible(after.arguments, _convert_all(outputs, types)))
            self._bind_results(node, loop.results)

    def _import_hop_map_impl(self, loc: Location, node: fx.Node, hop: object) -> None:
        body = _subgraph(node, node.args[0])
        with loc:
            xs, extra = (self._operands(loc, args) for args in node.args[1:])

            def trip(index: Value, carry: Sequence[Value], x: Sequence[Value]) -> tuple[Outputs, Outputs]:
                return [], self._inline(loc, body, [*x, *extra])

            _, ys = self._for_each(xs, [], [], _results(node), trip)
            self._bind_results(node, ys)

    def _import_hop_scan(self, loc: Location, node: fx.Node, hop: object) -> None:
        body = _subgraph(node, node.args[0])
        with loc:
            inits, xs, extra = (self._operands(loc, args) for args in node.args[1:])
            count = len(inits)

            def trip(index: Value, carry: Sequence[Value], x: Sequence[Value]) -> tuple[Outputs, Outputs]:
                outputs = self._inline(loc, body, [*carry, *x, *extra])
                return outputs[:count], outputs[count:]

            types = _join(
                [init.type for init in inits],
                self._types(_inputs(body)[:count]),
                self._types(_outputs(body)[:count]),
                self._types(_results(node)[:count]),
            )
            carries, ys = self._for_each(xs, inits, types, _results(node)[count:], trip)
            self._bind_results(node, [*carries, *ys])

    def _import_hop_associative_scan(self, loc: Location, node: fx.Node, hop: object) -> None:
        body = _subgraph(node, node.args[0])
        with loc:
            xs, extra = (self._operands(loc, args) for args in node.args[1:])
            types = _join(self._types(_outputs(body)), self._types(_inputs(body)[: len(xs)]))

            def trip(index: Value, carry: Sequence[Value], x: Sequence[Value]) -> tuple[Outputs, Outputs]:
                first = arith.CmpIOp(arith.CmpIPredicate.eq, index, _index(0)).result
                branch = scf.IfOp(first, types, has_else=True)
                with InsertionPoint(branch.then_block):
                    scf.YieldOp(_convert_all(x, types))
                with InsertionPoint(branch.else_block):
                    outputs = self._inline(loc, body, [*carry, *x, *extra])
                    scf.YieldOp(_convert_all(outputs, types))
                return list(branch.results), list(branch.results)

            # The first trip takes x[0], so what the carries start as is never read.
            inits = [
                self._empty(val.shape[1:], wanted) for val, wanted in zip(_results(node), types, strict=True)
            ]
            _, ys = self._for_each(xs, inits, types, _results(node), trip)
            self._bind_results(node, ys)

    def _import_hop_invoke_subgraph(self, loc: Location, node: fx.Node, hop: object) -> None:
        name, _identifier, *operands = node.args
        with loc:
            self._bind_results(node, self._inline(loc, _subgraph(node, name), self._operands(loc, operands)))

    def _for_each(
        self,
        xs: Sequence[Value],
        inits: Sequence[Value],
        types: Sequence[Type],
        stacked: Sequence[Any],
        trip: Trip,
    ) -> tuple[Outputs, Outputs]:
        """Emit a loop over dim 0 of `xs` that carries values and stacks outputs along a new dim 0.

        Args:
            xs: At least one; all have the same size in dim 0.
            inits: What the carries start as.
            types: The carries' types.
            stacked: The fake value of each stacked result, None for an output that is None.
            trip: Emits one trip from the index, the carries and a slice of each of `xs`; gives the next
                carries and the outputs.

        Returns:
            The last carries and the stacked outputs.
        """
        sources = [convert(x, builtin_type(x.type)) for x in xs]
        stacks = [
            None if val is None else self._empty(val.shape, builtin_type(self._type(val))) for val in stacked
        ]
        count = _dim(sources[0], 0)
        starts = [*_convert_all(inits, types), *_present(stacks)]
        loop = scf.ForOp(_index(0), count, _index(1), starts)
        with InsertionPoint(loop.body):
            index, *arguments = loop.body.arguments
            rows = [_extract_row(source, index) for source in sources]
            carries, outputs = trip(index, arguments[: len(inits)], rows)
            written = [
                _insert_row(output, stack, index)
                for output, stack in zip(_present(outputs), arguments[len(inits) :], strict=True)
            ]
            scf.YieldOp([*_convert_all(carries, types), *written])
        results = list(loop.results)
        ys = iter(results[len(inits) :])
        return results[: len(inits)], [None if stack is None else next(ys) for stack in stacks]

    def _inline(self, loc: Location, graph: fx.GraphModule, operands: Sequence[Value]) -> Outputs:
        """Import a subgraph's ops at the insertion point, which is at a block's end."""
        inner = type(self)(self.fx_importer, self._c, self._cc, InsertionPoint.current.block)
        inner.outer = self
        nodes = list(graph.graph.nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        for placeholder, operand in zip(placeholders, operands, strict=True):
            inner.bind_node_value(placeholder, convert(operand, self._type(placeholder.meta["val"])))
        inner.import_nodes(nodes, skip_placeholders_outputs=True)
        return [
            None if output is None else inner._import_argument(loc, output) for output in _output_nodes(graph)
        ]

    def _always(self) -> Value | None:
        """A hook: an `i1` that is true, and that the compiler cannot know to be; None for none needed."""
        return None

    def _visible(self, carries: Sequence[Value], outputs: Sequence[Value]) -> list[Value]:
        """Make a loop's trips read each carry and change it, as far as the compiler can see."""
        always = self._always()
        if always is None:
            return list(outputs)
        return [
            arith.SelectOp(always, output, carry).result
            for carry, output in zip(carries, outputs, strict=True)
        ]

    def _operands(self, loc: Location, arguments: Iterable[Any]) -> list[Value]:
        return [self._import_argument(loc, argument) for argument in arguments]

    def _bind_results(self, node: fx.Node, values: Iterable[Value | None]) -> None:
        self._multi_result_nodes.add(node)
        for index, (value, val) in enumerate(zip(values, _results(node), strict=True)):
            result = None if value is None else convert(value, self._type(val))
            self.bind_node_value(node, result, index)

    def _type(self, val: Any) -> Type:
        """The torch type of a fake value or a constant."""
        if isinstance(val, torch.Tensor):
            return self._cc.get_vtensor_type(val.size(), val.dtype)
        return self._cc.value_info_to_type(val)

    def _types(self, vals: Iterable[Any]) -> list[Type | None]:
        return [None if val is None else self._type(val) for val in vals]

    def _empty(self, shape: Sequence[int | torch.SymInt], wanted: Type) -> Value:
        sizes = [dim if isinstance(dim, int) else self._size(dim.node.expr) for dim in shape]
        return convert(tensor.EmptyOp(sizes, wanted.element_type).result, wanted)

    def _size(self, expr: sympy.Expr) -> Value:
        """Compute a symbolic size, as an index, from the values that are at hand."""
        known = self._known_size(expr)
        if known is not None:
            return known
        if isinstance(expr, sympy.Integer):
            return _index(int(expr))
        if type(expr) not in _SIZE_OPS:
            raise ControlFlowError(f"the size {expr} of a stacked output is not known before the loop")
        emit = _SIZE_OPS[type(expr)]
        return reduce(lambda left, right: emit(left, right).result, map(self._size, expr.args))

    def _known_size(self, expr: sympy.Expr) -> Value | None:
        """The size where a value at hand is that number or has it as a dim."""
        for (node, position), value in self._v.items():
            val = node.meta.get("val")
            val = val[position] if isinstance(val, (tuple, list)) else val
            if isinstance(val, torch.SymInt) and val.node.expr == expr:
                return arith.IndexCastOp(IndexType.get(), convert(value, builtin_type(value.type))).result
            if isinstance(val, torch.Tensor) and isinstance(value, Value):
                for dim, size in enumerate(val.shape):
                    if isinstance(size, torch.SymInt) and size.node.expr == expr:
                        return _dim(convert(value, builtin_type(value.type)), dim)
        return self.outer._known_size(expr) if self.outer else None


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


def _subgraph(node: fx.Node, name: Any) -> fx.GraphModule:
    graph = operator.attrgetter(name.target)(node.graph.owning_module)
    assert isinstance(graph, fx.GraphModule), f"{name.target} is no graph"
    return graph


def _output_nodes(graph: fx.GraphModule) -> list[Any]:
    (result,) = graph.graph.output_node().args
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _outputs(graph: fx.GraphModule) -> list[Any]:
    return [node.meta["val"] if isinstance(node, fx.Node) else node for node in _output_nodes(graph)]


def _inputs(graph: fx.GraphModule) -> list[Any]:
    return [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]


def _results(node: fx.Node) -> list[Any]:
    return list(node.meta["val"])


def _present(items: Iterable[Any]) -> list[Any]:
    return [item for item in items if item is not None]


def builtin_type(torch_type: Type) -> Type:
    """The builtin type of a torch type; a builtin type is its own."""
    text = str(torch_type)
    if text in _SCALARS:
        return Type.parse(_SCALARS[text])
    found = _VTENSOR.fullmatch(text)
    if not found:
        return torch_type
    dims = "".join(f"{dim}x" for dim in found["dims"].split(",") if dim)
    return Type.parse(f"tensor<{dims}{_SIGN.sub('i', found['element'])}>")


def _join(*rows: Sequence[Type | None]) -> list[Type | None]:
    """The builtin type of each slot that every row's type of that slot can be cast to and from."""
    return [
        None if None in slot else reduce(_join_two, map(builtin_type, slot)) for slot in zip(*rows, strict=True)
    ]


def _join_two(left: Type, right: Type) -> Type:
    if left == right:
        return left
    if not (isinstance(left, RankedTensorType) and isinstance(right, RankedTensorType)):
        raise ControlFlowError(f"one value is {left} here and {right} there")
    if left.rank != right.rank or left.element_type != right.element_type:
        raise ControlFlowError(f"one value is {left} here and {right} there")
    dims = [a if a == b else _DYNAMIC for a, b in zip(left.shape, right.shape, strict=True)]
    return RankedTensorType.get(dims, left.element_type)


def convert(value: Value, wanted: Type) -> Value:
    """Emit the casts between a torch type or its builtin type and another of the same kind."""
    if value.type == wanted:
        return value
    inner, outer = builtin_type(value.type), builtin_type(wanted)
    if value.type != inner:
        suffix = "builtin_tensor" if isinstance(inner, RankedTensorType) else str(inner)
        value = Operation.create(f"torch_c.to_{suffix}", results=[inner], operands=[value]).result
    if inner != outer:
        value = tensor.CastOp(outer, value).result
    if wanted != outer:
        suffix = "builtin_tensor" if isinstance(outer, RankedTensorType) else str(outer)
        value = Operation.create(f"torch_c.from_{suffix}", results=[wanted], operands=[value]).result
    return value


def _convert_all(values: Iterable[Value | None], types: Iterable[Type | None]) -> list[Value]:
    """Convert what is there; a slot is None in both or in neither."""
    pairs = zip(_present(values), _present(types), strict=True)
    return [convert(value, wanted) for value, wanted in pairs]


def _to_i1(value: Value) -> Value:
    """A predicate as `i1`: a bool, or a tensor of one bool."""
    value = convert(value, builtin_type(value.type))
    if isinstance(value.type, RankedTensorType):
        value = tensor.ExtractOp(value, [_index(0)] * value.type.rank).result
    if value.type != IntegerType.get_signless(1):
        raise ControlFlowError(f"a predicate is {value.type}, not a bool")
    return value


def _index(number: int) -> Value:
    return arith.ConstantOp(IndexType.get(), IntegerAttr.get(IndexType.get(), number)).result


def _dim(source: Value, dim: int) -> Value:
    return tensor.DimOp(source, _index(dim)).result


def _row(source: Value) -> dict[str, list[int]]:
    """The static part of a slice that takes one row of dim 0, whole in the other dims."""
    rank = source.type.rank
    return {
        "static_offsets": [_DYNAMIC] + [0] * (rank - 1),
        "static_sizes": [1, *source.type.shape[1:]],
        "static_strides": [1] * rank,
    }


def dynamic_dims(source: Value, start: int = 0) -> list[Value]:
    """The sizes, as indices, of the dims from `start` on that a builtin value's type does not give."""
    if not isinstance(source.type, RankedTensorType):
        return []
    return [_dim(source, dim) for dim in range(start, source.type.rank) if source.type.is_dynamic_dim(dim)]


def _extract_row(source: Value, index: Value) -> Value:
    row = RankedTensorType.get(source.type.shape[1:], source.type.element_type)
    slice_ = tensor.ExtractSliceOp(row, source, [index], dynamic_dims(source, 1), [], **_row(source))
    return slice_.result


def _insert_row(value: Value, stack: Value, index: Value) -> Value:
    row = RankedTensorType.get(stack.type.shape[1:], stack.type.element_type)
    value = convert(convert(value, builtin_type(value.type)), row)
    return tensor.InsertSliceOp(value, stack, [index], dynamic_dims(stack, 1), [], **_row(stack)).result
