"""StableHLO modules as jaxlib's bindings hold them.

Torch-free. jaxlib is imported by the calls, since XLA reads its environment when it is loaded.
"""

from __future__ import annotations

from typing import Any, Final

_BYTECODE: Final = b"ML\xefR"


def parsed(module: bytes) -> Any:
    """A module of portable bytecode, or of text: compilers without a device take no bytes."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    if not module.startswith(_BYTECODE):
        return ir.Module.parse(module.decode(), context())
    return stablehlo.deserialize_portable_artifact(context(), module)


def main_of(module: Any) -> Any:
    """The function that a module's callers call."""
    return next(each for each in module.body.operations if each.attributes["sym_name"].value == "main")


def context() -> Any:
    """A new context for modules, which knows StableHLO and what goes with it."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, stablehlo

    found, known = ir.Context(), ir.DialectRegistry()
    # jaxlib's bindings load StableHLO by themselves, and the functions around it only so.
    _jax_mlir_ext.register_dialects(known)
    found.append_dialect_registry(known)
    stablehlo.register_dialect(found)
    chlo.register_dialect(found)
    return found
