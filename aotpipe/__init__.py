"""aotpipe: a PyTorch model in, verified programs for IREE out.

    bundle = aotpipe.build(model, args=(x,), targets=["iree-cpu-host"], out="artifacts/model")
    with aotpipe.load("artifacts/model", target="iree-cpu-host") as runner:
        y = runner.infer({"x": x})

Names are imported when they are first used: a host without torch and compiler can `import aotpipe`, `load` a
bundle and read its errors, and pays for nothing else.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from aotpipe.bisect import bisect
    from aotpipe.bundle import Bundle
    from aotpipe.bundle.load import load
    from aotpipe.capacity import capacity
    from aotpipe.check import check
    from aotpipe.errors import AotpipeError
    from aotpipe.islands import eager_island
    from aotpipe.pipeline import build
    from aotpipe.pipeline.steps import canonicalize, export
    from aotpipe.recompiles import recompiles
    from aotpipe.signature import Signature
    from aotpipe.spec import AUTO, Dim, EntryPoint, Example, Spec
    from aotpipe.targets import Target
    from aotpipe.written import written

__all__ = [
    "AUTO",
    "AotpipeError",
    "Bundle",
    "Dim",
    "EntryPoint",
    "Example",
    "Signature",
    "Spec",
    "Target",
    "__version__",
    "bisect",
    "build",
    "canonicalize",
    "capacity",
    "check",
    "eager_island",
    "export",
    "load",
    "recompiles",
    "written",
]

_HOMES = {
    "AUTO": "aotpipe.spec",
    "AotpipeError": "aotpipe.errors",
    "Bundle": "aotpipe.bundle",
    "Dim": "aotpipe.spec",
    "EntryPoint": "aotpipe.spec",
    "Example": "aotpipe.spec",
    "Signature": "aotpipe.signature",
    "Spec": "aotpipe.spec",
    "Target": "aotpipe.targets",
    "bisect": "aotpipe.bisect",
    "build": "aotpipe.pipeline",
    "canonicalize": "aotpipe.pipeline.steps",
    "capacity": "aotpipe.capacity",
    "check": "aotpipe.check",
    "eager_island": "aotpipe.islands",
    "export": "aotpipe.pipeline.steps",
    "load": "aotpipe.bundle",
    "recompiles": "aotpipe.recompiles",
    "written": "aotpipe.written",
}


class _Package(ModuleType):
    """A package whose functions such as `export` are not hidden by the modules of their name."""

    def __setattr__(self, name: str, value: object) -> None:
        # Python binds a submodule in its package whenever somebody imports it.
        if name in _HOMES and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


sys.modules[__name__].__class__ = _Package
