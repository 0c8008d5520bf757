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
    from aotpipe.build.build import build as build
    from aotpipe.build.steps import canonicalize as canonicalize
    from aotpipe.build.steps import export as export
    from aotpipe.core.signature import Signature as Signature
    from aotpipe.core.targets import Target as Target
    from aotpipe.errors import AotpipeError as AotpipeError
    from aotpipe.islands.marking import eager_island as eager_island
    from aotpipe.model.capacity import capacity as capacity
    from aotpipe.model.spec import AUTO as AUTO
    from aotpipe.model.spec import Dim as Dim
    from aotpipe.model.spec import EntryPoint as EntryPoint
    from aotpipe.model.spec import Example as Example
    from aotpipe.model.spec import Spec as Spec
    from aotpipe.runtime.bundle import Bundle as Bundle
    from aotpipe.runtime.bundle.load import load as load
    from aotpipe.runtime.bundle.pack import archive as archive
    from aotpipe.runtime.bundle.signatures import sign as sign
    from aotpipe.runtime.bundle.signatures import trusted as trusted
    from aotpipe.runtime.bundle.signatures import verify as verify
    from aotpipe.runtime.input_checks import Packer as Packer
    from aotpipe.tools.bisect import bisect as bisect
    from aotpipe.tools.check import check as check
    from aotpipe.tools.recompiles import recompiles as recompiles
    from aotpipe.tools.rewrite import written as written

_HOMES = {
    "AUTO": "aotpipe.model.spec",
    "AotpipeError": "aotpipe.errors",
    "Bundle": "aotpipe.runtime.bundle",
    "Dim": "aotpipe.model.spec",
    "EntryPoint": "aotpipe.model.spec",
    "Example": "aotpipe.model.spec",
    "Packer": "aotpipe.runtime.input_checks",
    "Signature": "aotpipe.core.signature",
    "Spec": "aotpipe.model.spec",
    "Target": "aotpipe.core.targets",
    "archive": "aotpipe.runtime.bundle",
    "bisect": "aotpipe.tools.bisect",
    "build": "aotpipe.build.build",
    "canonicalize": "aotpipe.build.steps",
    "capacity": "aotpipe.model.capacity",
    "check": "aotpipe.tools.check",
    "eager_island": "aotpipe.islands.marking",
    "export": "aotpipe.build.steps",
    "load": "aotpipe.runtime.bundle",
    "recompiles": "aotpipe.tools.recompiles",
    "sign": "aotpipe.runtime.bundle",
    "trusted": "aotpipe.runtime.bundle",
    "verify": "aotpipe.runtime.bundle",
    "written": "aotpipe.tools.rewrite",
}
__all__ = sorted(["__version__", *_HOMES])


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
