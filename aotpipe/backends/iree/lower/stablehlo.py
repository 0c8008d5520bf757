"""Legal programs to one MLIR module of StableHLO for IREE: the XLA path's lowering, by IREE's conventions.

`lower(legal)` gives a module as that of the torch dialect (`importer`): one public function per entry point,
of the same name, from the state and the inputs to the graph's outputs; weights are globals that the runtime
fills from the parameter scope `model`, one per key. What jax gives beside a function, which takes the weights
as its first arguments, becomes private functions with the entry point's name in front of theirs.

The text is that of jaxlib's printer, which IREE's own StableHLO of 2026 reads; the portable bytecode cannot
hold IREE's globals. It names the user's file and line of each op; the digest is over the module without them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from aotpipe.backends.iree.fixes.rewrites import Rewrite, apply_to, ops_in
from aotpipe.backends.iree.lower.importer import PARAMETER_SCOPE
from aotpipe.backends.xla import lowering
from aotpipe.core import fixes
from aotpipe.core.stages import Legal, LegalEntry, Lowered
from aotpipe.errors import NoBuckets, SourceLine
from aotpipe.passes import hops, unbacked
from aotpipe.passes.rules import counted, error_of
from aotpipe.passes.source_lines import nearest_line
from aotpipe.runtime import installed

if TYPE_CHECKING:
    from aotpipe.backends.xla.interpreter import Lines

_FIXES: Final = "aotpipe.backends.iree.fixes.stablehlo"
_PLATFORM: Final = "cpu"
"""Of the forms that jax has of an op the one of plain StableHLO; those for GPUs and TPUs call libraries."""
_HINT: Final = "write the named line with other ops, or leave --dialect out: the torch dialect may take it"
_FIXED: Final = "IREE takes StableHLO of fixed sizes only"
# As the printer writes them: `#loc3 = loc("jit(forward)/aot2/add"(#loc1))`.
_NAMED: Final = re.compile(r'^#(loc\d*) = loc\("((?:[^"\\]|\\.)*)"(?:\(.*\)|:\d+:\d+.*)?\)$')
_OTHER: Final = re.compile(r"^#(loc\d*) = loc\(.*\)$")


def lower(legal: Legal) -> Lowered:
    """Lower every entry point into one module.

    Raises:
        NoBuckets: A Dim may vary, and the module has fixed sizes.
        UnsupportedOps: An op has no lowering, or one that IREE's StableHLO input does not take.
        LowerFailed: A fault of aotpipe's own.
        TargetError: jax is not installed.
    """
    installed.require()
    for entry in legal.entries:
        _require_fixed(entry)
    from aotpipe.backends.xla.interpreter import Lines

    lines = Lines()
    with lowering.own_settings():
        modules = [_module(entry, lines) for entry in legal.entries]
    if untaken := counted(each for module in modules for each in _untaken(module, lines)):
        raise error_of(untaken, hint=_HINT)
    joined = _Joined(modules[0].context)
    for entry, module in zip(legal.entries, modules, strict=True):
        joined.add(entry, module)
    return Lowered(
        dialect="stablehlo",
        module=_with_user_lines(joined.text(debug=True), lines).encode(),
        entry_points=tuple(entry.name for entry in legal.entries),
        digest=hashlib.sha256(joined.text(debug=False).encode()).hexdigest(),
    )


def _module(entry: LegalEntry, lines: Lines) -> Any:
    sizes = {symbol.name: symbol.min for symbol in lowering.symbols_of(entry)}
    traced = lowering.trace(entry, lowering.bound_of(entry, sizes), sizes, {}, lines)
    return lowering.module_of(traced, _PLATFORM)


def _require_fixed(entry: LegalEntry) -> None:
    """Refuse sizes that vary: IREE's conversion from StableHLO fails on reshapes and windows of them."""
    for symbol in lowering.symbols_of(entry):
        if symbol.max != symbol.min:
            raise NoBuckets(
                f"the Dim {symbol} of {entry.name!r} may vary, and {_FIXED}",
                hint=f"leave --dialect out, for the torch dialect takes it, or give {symbol.name} one size "
                "in the Spec",
            )
    for node in (node for graph in hops.walk(entry.graph) for node in graph.graph.nodes):
        if found := unbacked.used_by(node):
            reason = f"the size {min(map(str, found))} depends on data, and {_FIXED}"
            raise error_of(
                counted([(str(node.target), reason, nearest_line(node))]),
                hint="leave --dialect out: the torch dialect takes sizes that depend on data",
            )


def _let_through(barrier: Any) -> bool:
    for operand, result in zip(list(barrier.operands), list(barrier.results), strict=True):
        result.replace_all_uses_with(operand)
    barrier.erase()
    return True


# They keep XLA from rewrites of its own (`backends.xla.exact_quotients`), which IREE has none of.
_WITHOUT_BARRIERS: Final = Rewrite(("stablehlo.optimization_barrier",), _let_through)


class _Joined:
    """The functions of several modules in one, and the globals that they load."""

    def __init__(self, context: Any) -> None:
        """Start with nothing, in a context of jax's, which knows every dialect that its modules are of."""
        from jaxlib.mlir import ir

        self._context = context
        # IREE's own ops are not known to jaxlib: they are written in the form that any op has.
        self._context.allow_unregistered_dialects = True
        with ir.Location.unknown(self._context):
            self._module = ir.Module.create()
        self._symbols: dict[str, str] = {}
        self._globals: list[str] = []

    def add(self, entry: LegalEntry, module: Any) -> None:
        """Take an entry point's functions over, with weights as globals."""
        from jaxlib.mlir import ir

        text = module.operation.get_asm(enable_debug_info=True)
        with self._context, ir.Location.unknown():
            own = ir.Module.parse(text)
            _rename(own, entry.name)
            for function in list(own.body.operations):
                if function.attributes["sym_name"].value == entry.name:
                    self._load_weights(entry, function)
                for given in ("arg_attrs", "res_attrs"):
                    if given in function.attributes:
                        # What jax tells XLA of a function's border: no layout or donation of it counts here.
                        del function.attributes[given]
                apply_to(function.operation, _WITHOUT_BARRIERS)
                for fix in fixes.active(_FIXES):
                    apply_to(function.operation, fix.apply)
                self._module.body.append(function)

    def text(self, *, debug: bool) -> str:
        """The module's text; for debugging with a location for each op."""
        printed = self._module.operation.get_asm(enable_debug_info=debug)
        head, brace, rest = printed.partition("module {\n")
        assert brace, "the module has attributes"
        return f"{head}{brace}{''.join(self._globals)}{rest}"

    def _load_weights(self, entry: LegalEntry, function: Any) -> None:
        from jaxlib.mlir import ir

        block = function.regions[0].blocks[0]
        count = len(entry.weights)
        with ir.InsertionPoint.at_block_begin(block):
            for key, argument in zip(entry.weights, list(block.arguments)[:count], strict=True):
                argument.replace_all_uses_with(self._loaded(key, argument.type))
        for _ in range(count):
            block.erase_argument(0)
        kind = ir.FunctionType(function.attributes["function_type"].value)
        left = ir.FunctionType.get(list(kind.inputs)[count:], list(kind.results))
        function.attributes["function_type"] = ir.TypeAttr.get(left)

    def _loaded(self, key: str, wanted: Any) -> Any:
        from jaxlib.mlir import ir
        from jaxlib.mlir.dialects import stablehlo

        # IREE's globals have no sign.
        stored = ir.Type.parse(re.sub(r"\bui(?=\d)|(?<=x)ui(?=\d)", "i", str(wanted)))
        if key not in self._symbols:
            # An entry point's name has no dot.
            self._symbols[key] = f"weight.{len(self._symbols)}"
            quoted = ir.StringAttr.get(key)
            self._globals.append(
                f"  util.global private @{self._symbols[key]} = "
                f'#flow.parameter.named<"{PARAMETER_SCOPE}"::{quoted}> : {stored}\n'
            )
        load = ir.Operation.create(
            "util.global.load",
            results=[stored],
            attributes={"global": ir.FlatSymbolRefAttr.get(self._symbols[key])},
        )
        if stored == wanted:
            return load.result
        return stablehlo.bitcast_convert(wanted, load.result)


def _rename(module: Any, entry: str) -> None:
    """Give a module's functions names that no other entry point's have."""
    from jaxlib.mlir import ir

    forms = {"func.func": ("sym_name", ir.StringAttr), "func.call": ("callee", ir.FlatSymbolRefAttr)}
    for operation in ops_in(module.operation):
        if operation.name in forms:
            key, form = forms[operation.name]
            old = operation.attributes[key].value
            operation.attributes[key] = form.get(entry if old == "main" else f"{entry}.{old}")


def _untaken(module: Any, lines: Lines) -> Iterator[tuple[str, str, SourceLine | None]]:
    """The ops that IREE has no conversion for: name, reason, and the user's line."""
    calls: dict[str, SourceLine] = {}
    # jax writes a function after those that call it, whose names of ops have the marks that its own lack.
    for function in module.body.operations:
        caller = calls.get(function.attributes["sym_name"].value)
        for operation in ops_in(function.operation):
            where = lines.find(str(operation.location)) or caller
            if operation.name == "func.call" and where:
                calls.setdefault(operation.attributes["callee"].value, where)
            if reason := _reason(str(operation.name), operation):
                yield str(operation.name), reason, where


def _reason(name: str, operation: Any) -> str:
    """Why IREE 3.13 has no conversion for an op of StableHLO; empty where it has one."""
    if name == "stablehlo.custom_call":
        return f"a call of XLA's own `{operation.attributes['call_target_name'].value}`"
    if name == "stablehlo.composite":
        return "IREE has no composites"
    if name != "stablehlo.fft":
        return ""
    sizes = [int(size) for size in operation.attributes["fft_length"]]
    if "IRFFT" in str(operation.attributes["fft_type"]):
        return "IREE has no Fourier transform back to real numbers"
    if len(sizes) > 1:
        return "IREE has Fourier transforms of one dim only"
    return "" if sizes[0].bit_count() == 1 else "IREE has Fourier transforms of powers of two only"


def _with_user_lines(text: str, lines: Lines) -> str:
    """A module's text whose locations are the user's lines, and nothing of this machine's Python."""

    def location(line: str) -> str:
        if named := _NAMED.match(line):
            where = lines.find(named[2])
            if where is not None:
                path = str(where.path).replace("\\", "\\\\").replace('"', '\\"')
                return f'#{named[1]} = loc("{path}":{where.line}:0)'
        if other := _OTHER.match(line):
            return f"#{other[1]} = loc(unknown)"
        return line

    return "\n".join(map(location, text.split("\n")))
