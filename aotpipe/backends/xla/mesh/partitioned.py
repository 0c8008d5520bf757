"""What one device of several has to compute: the module that XLA's partitioner makes of a program for a mesh.

`of_one_device(module, compile_program, options, folder)` gives that module, parsed, so that it is counted as
any other. Torch-free; needs jaxlib.

XLA hands out a partitioned program only as a dump, and writes into an executable where its dumps went. So the
program is compiled once more for that, with a call at its end that no compiler knows: it stops there, before
it makes code.
"""

# ruff: noqa: SLF001  # the bindings that read XLA's own form have no public names

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from aotpipe.backends.xla.modules import context, main_of

_PARTITIONER: Final = "spmd-partitioning"
_UNKNOWN: Final = "aotpipe_stops_here"
_HLO_MODULE: Final = 0x0A  # the tag of the first field of XLA's HloProto
_SEVEN_BITS: Final = 0x7F


def of_one_device(
    module: Any, compile_program: Callable[[Any, Any], Any], options: Any, folder: Path
) -> Any | None:
    """The module of each device, parsed; None where this compiler left none.

    Args:
        module: The whole program, parsed; a call is put at its end.
        compile_program: The compiler, which takes a module and options.
        options: What it is told of the devices; where it dumps to is added.
        folder: Empty; what it dumps stays there.
    """
    _end_by_an_unknown_call(module)
    dumps = options.executable_build_options.debug_options
    dumps.xla_dump_to = str(folder)
    dumps.xla_dump_hlo_as_proto = True
    dumps.xla_dump_hlo_pass_re = f".*{_PARTITIONER}"
    # Which is what the call is for.
    with suppress(RuntimeError, ValueError):
        compile_program(module, options)
    found = sorted(folder.glob(f"*.after_*{_PARTITIONER}.before_*.hlo.pb"))
    return _parsed(_first_field(found[0].read_bytes())) if found else None


def _end_by_an_unknown_call(module: Any) -> None:
    from jaxlib.mlir import ir

    block = main_of(module).regions[0].blocks[0]
    end = block.operations[len(block.operations) - 1]
    with module.context, ir.Location.unknown(), ir.InsertionPoint(end):
        ir.Operation.create(
            "stablehlo.custom_call",
            attributes={
                "call_target_name": ir.StringAttr.get(_UNKNOWN),
                "has_side_effect": ir.BoolAttr.get(True),
                # The partitioner lets nothing else stand that has side effects.
                "mhlo.sharding": ir.StringAttr.get("{manual}"),
            },
        )


def _first_field(proto: bytes) -> bytes:
    """The module in XLA's HloProto, whose first field it is."""
    if proto[0] != _HLO_MODULE:
        raise ValueError("this jaxlib dumps modules in another form")
    size = shift = 0
    at = 1
    while True:
        size |= (proto[at] & _SEVEN_BITS) << shift
        shift += 7
        at += 1
        if proto[at - 1] <= _SEVEN_BITS:
            return proto[at : at + size]


def _parsed(hlo: bytes) -> Any:
    from jaxlib import xla_client as xla
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import sdy

    found = context()
    sdy.register_dialect(found)
    # Attributes of XLA's own stay on it.
    found.allow_unregistered_dialects = True
    return ir.Module.parse(xla._xla.mlir.hlo_to_stablehlo(hlo), found)
