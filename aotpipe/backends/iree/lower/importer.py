"""Legal programs to one MLIR module of the torch dialect.

`lower(legal)` gives a module with one public function per entry point, of the same name. A function's
arguments are the state, then the inputs; its results are the graph's outputs. Weights are globals that the
runtime fills from the parameter scope `model` by their key in `Legal.weights`, one global per key.

The text names the user's file and line of each op where torch recorded one; the digest is over the module
without them, so that the same model gives the same digest from any folder.
"""
# ruff: noqa: SLF001  # what the importer lets a subclass or an integrator use starts with an underscore

from __future__ import annotations

import copy
import hashlib
from typing import Any, Final

import torch
from iree.compiler import ir
from iree.compiler.dialects import func, util
from iree.compiler.extras.fx_importer import ContextCache, FxImporter
from torch.fx.passes.shape_prop import _extract_tensor_metadata  # the form that the importer reads

from aotpipe.backends.iree.fixes.graphs import modules
from aotpipe.backends.iree.lower.control_flow import ControlFlowImporter
from aotpipe.backends.iree.lower.region_borders import builtin_type, convert, in_own_buffer, to_builtin
from aotpipe.backends.iree.tuning import pools
from aotpipe.core import fixes
from aotpipe.core.stages import Legal, LegalEntry, Lowered
from aotpipe.errors import LowerFailed
from aotpipe.passes import hops, ops
from aotpipe.passes.source_lines import source_line

PARAMETER_SCOPE: Final = "model"
_FIXES: Final = "aotpipe.backends.iree.fixes.graphs"


def lower(legal: Legal) -> Lowered:
    """Import every entry point of a legal program into one module.

    Raises:
        LowerFailed: The importer has no form for a node, of which the legalizer should have let none through;
            the node's name and the user's line are given.
    """
    # The importer rewrites nodes in place, and a Legal is frozen.
    graphs = [copy.deepcopy(entry.graph) for entry in legal.entries]
    for fix in fixes.active(_FIXES):
        fix.apply.rewrite(graphs)
    context = ir.Context()
    with context, ir.Location.unknown():
        importer = FxImporter(context=context, config_check=False, graph_node_importer_cls=_NodeImporter)
        importer._cc = lines = _UserLines(context)
        globals_ = _Weights(importer.module_op)
        for entry, graph in zip(legal.entries, graphs, strict=True):
            try:
                _import_entry(importer, globals_, entry, graph)
            except _REFUSALS as error:
                raise _refusal(entry, lines.node, error) from error
        try:
            importer.module_op.verify()
        except ir.MLIRError as error:
            raise LowerFailed(
                f"the module of {legal.name} does not verify", reason=str(error), hint=_REPORT
            ) from error
        text = importer.module_op.get_asm(enable_debug_info=True)
        bare = importer.module_op.get_asm(enable_debug_info=False)
    return Lowered(
        dialect="torch",
        module=text.encode(),
        entry_points=tuple(entry.name for entry in legal.entries),
        digest=hashlib.sha256(bare.encode()).hexdigest(),
    )


# What the importer raises where it has no form for a node: it has no error of its own.
_REFUSALS: Final = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_REPORT: Final = "the legalizer should have caught this; please report it with the model"


def _refusal(entry: LegalEntry, node: torch.fx.Node | None, error: Exception) -> LowerFailed:
    what = f"`{node.target}` (node {node.name})" if node else "the graph"
    missing = error.args[0] if isinstance(error, KeyError) else None
    if isinstance(missing, torch.dtype):
        # An input that is handed on, so that no op was there for the legalizer to refuse.
        name = str(missing).removeprefix("torch.")
        return LowerFailed(
            f"{entry.name} takes or gives {name}, which IREE's importer does not have",
            hint="pass it in another dtype, or build for an xla-* target",
            where=source_line(node) if node else None,
        )
    return LowerFailed(
        f"no lowering to the torch dialect for {what} of {entry.name}",
        reason=f"{type(error).__name__}: {error}",
        hint=_REPORT,
        where=source_line(node) if node else None,
    )


def _import_entry(
    importer: FxImporter, weights: _Weights, entry: LegalEntry, graph_module: torch.fx.GraphModule
) -> None:
    for module in modules([graph_module]):
        for node in module.graph.find_nodes(op="call_function", target=ops.ITEM):
            # The importer reads this form of the tensor, which torch's own tracing alone notes.
            tensor: Any = node.args[0]
            tensor.meta["tensor_meta"] = _extract_tensor_metadata(tensor.meta["val"])
    inputs = hops.placeholders(graph_module)
    weights_in, rest = inputs[: len(entry.weights)], inputs[len(entry.weights) :]
    outputs = hops.output_values(graph_module)
    node_type = importer._cc.node_val_to_type
    function_type = ir.FunctionType.get(list(map(node_type, rest)), list(map(node_type, outputs)))
    function = func.FuncOp(entry.name, function_type, ip=importer._m_ip, visibility="public")
    # Sound for exported programs, and lets the compiler drop checks for dims of size 1 that broadcast.
    function.attributes["torch.assume_strict_symbolic_shapes"] = ir.UnitAttr.get()
    block = function.add_entry_block()
    body = _NodeImporter(importer, importer._c, importer._cc, block)
    with ir.InsertionPoint(block):
        for node, key in zip(weights_in, entry.weights, strict=True):
            if node.users:
                body.bind_node_value(node, weights.load(key, node_type(node)))
    for node, argument in zip(rest, block.arguments, strict=True):
        body.bind_node_value(node, argument)
    results = body.import_needed(graph_module, set(range(len(outputs))))
    with ir.InsertionPoint(block):
        func.ReturnOp(results)


class _Weights:
    """The module's globals: one per weight that a function loads."""

    def __init__(self, module_op: ir.Operation) -> None:
        self._body = module_op.regions[0].blocks[0]
        self._symbols: dict[str, str] = {}

    def load(self, key: str, torch_type: ir.Type) -> ir.Value:
        """Emit the load of a weight as a torch value."""
        stored = builtin_type(torch_type)
        if key not in self._symbols:
            # An entry point's name has no dot.
            self._symbols[key] = f"weight.{len(self._symbols)}"
            named = f'#flow.parameter.named<"{PARAMETER_SCOPE}"::{ir.StringAttr.get(key)}> : {stored}'
            initial = ir.Attribute.parse(named)
            with ir.InsertionPoint.at_block_begin(self._body):
                util.global_(self._symbols[key], stored, sym_visibility="private", initial_value=initial)
        return convert(util.global_load(stored, self._symbols[key]), torch_type)


class _NodeImporter(ControlFlowImporter):
    """Writes constants into the text; the legalizer leaves small ones only."""

    def _import_torch_op_overload(self, loc: ir.Location, node: torch.fx.Node, target: Any = None) -> None:
        """Copy the operands that a workaround wants in buffers of their own."""
        sources = [source for fix in fixes.active(_FIXES) for source in fix.apply.own_buffers(node)]
        values = {(source, 0): self.resolve_node_value(source) for source in sources}
        with loc, ir.InsertionPoint(self._b):
            for place, value in values.items():
                self._v[place] = convert(in_own_buffer(to_builtin(value)), value.type)
        if node.target is pools.OP:
            with loc, ir.InsertionPoint(self._b):
                self.bind_node_value(node, self._max_pool(node))
        else:
            super()._import_torch_op_overload(loc, node, target)
        self._v.update(values)

    def _max_pool(self, node: torch.fx.Node) -> ir.Value:
        """Emit the compiler's loops for a pool with the channels last."""
        from iree.compiler.dialects import arith, linalg, tensor

        x = to_builtin(self.resolve_node_value(node.args[0]))
        kernel, stride = node.args[1:]
        torch_type = self._cc.node_val_to_type(node)
        kind = builtin_type(torch_type)
        least = arith.constant(kind.element_type, float("-inf"))
        begun = linalg.fill(least, outs=[tensor.empty(kind.shape, kind.element_type)])
        window = tensor.empty(kernel, kind.element_type)
        return convert(linalg.pooling_nhwc_max(x, window, outs=[begun], strides=stride), torch_type)

    def _import_literal(self, py_value: Any, info: Any = None) -> ir.Value:
        if not isinstance(py_value, torch.Tensor):
            return super()._import_literal(py_value, info)
        # The base keeps constants by `id`, which another tensor may have once a graph is gone. The bindings
        # have no class for complex elements, so that the whole op is parsed and not its attribute.
        element = self._cc.dtype_to_type(py_value.dtype)
        torch_type = self._cc.tensor_to_vtensor_type(py_value)
        text = f"%0 = torch.vtensor.literal({_dense(py_value, element)}) : {torch_type}"
        literal = ir.Operation.parse(text, context=self._c).operation
        ir.InsertionPoint.current.insert(literal)
        return literal.result


def _dense(value: torch.Tensor, element: ir.Type) -> str:
    """A constant's bits as an attribute's text, exact for every dtype."""
    shape = "".join(f"{size}x" for size in value.shape)
    value = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if value.dtype == torch.bool:
        bits = str(value.tolist()).lower() if value.numel() else ""
    else:
        data = value.reshape(-1).view(torch.uint8).numpy().tobytes()
        bits = f'"0x{data.hex().upper()}"' if data else ""
    return f"dense<{bits}> : tensor<{shape}{element}>"


class _UserLines(ContextCache):  # type: ignore[misc]
    """Locations that name the user's line; a node without one takes that of the node before."""

    def __init__(self, context: ir.Context) -> None:
        super().__init__(context)
        self.node: torch.fx.Node | None = None

    def get_node_location(self, node: torch.fx.Node) -> ir.Location | None:
        self.node = node
        line = source_line(node)
        return ir.Location.file(line.path, line.line, col=0, context=self._c) if line else None
