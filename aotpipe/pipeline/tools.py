"""What building takes beyond what running takes, looked for before any of it is imported. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Final

from aotpipe.backends.xla import installed as xla
from aotpipe.errors import TargetError
from aotpipe.stages import Dialect

# Package: module.
_ALWAYS: Final = {"torch": "torch", "jinja2": "jinja2"}
_TOOLS: Final[Mapping[Dialect, Mapping[str, str]]] = {
    "torch": {**_ALWAYS, "iree-base-compiler": "iree.compiler"},
    "stablehlo": _ALWAYS,
}


def require(dialects: Iterable[Dialect] = ("torch",)) -> None:
    """Say what to install where something is missing.

    Args:
        dialects: What models are lowered to.

    Raises:
        TargetError: With the line to copy.
    """
    chosen = tuple(dialects)
    if "stablehlo" in chosen:
        xla.require()
    wanted = {package: module for dialect in chosen for package, module in _TOOLS[dialect].items()}
    for package, module in wanted.items():
        if not _is_there(module):
            raise TargetError(
                f"{package} is not installed, and building needs it", hint="pip install 'aotpipe[build]'"
            )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False  # its parent package is missing
