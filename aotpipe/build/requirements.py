"""What building takes beyond what running takes, looked for before any of it is imported. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from aotpipe.core.stages import Dialect
from aotpipe.core.targets import Backend
from aotpipe.errors import TargetError
from aotpipe.runtime.xla import installed as xla

# Package: module.
_ALWAYS: Final = {"torch": "torch", "jinja2": "jinja2"}
_TOOLS: Final[Mapping[Backend, Mapping[str, str]]] = {
    "iree": {**_ALWAYS, "iree-base-compiler": "iree.compiler"},
    "xla": _ALWAYS,
}
_DEFAULT: Final[Mapping[Backend, Dialect]] = {"iree": "torch"}


def require(backends: Mapping[Backend, Dialect] = _DEFAULT) -> None:
    """Say what to install where something is missing.

    Args:
        backends: The compilers, with what models are lowered to for each.

    Raises:
        TargetError: With the line to copy.
    """
    if "stablehlo" in backends.values():
        xla.require()
    wanted = {package: module for backend in backends for package, module in _TOOLS[backend].items()}
    for package, module in wanted.items():
        if not is_there(module):
            raise TargetError(
                f"{package} is not installed, and building needs it", hint="pip install 'aotpipe[build]'"
            )


def is_there(module: str) -> bool:
    """Whether a module can be found; its parent package is imported, the module is not."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False  # its parent package is missing
