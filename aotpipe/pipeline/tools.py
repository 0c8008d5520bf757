"""What building takes beyond what running takes, looked for before any of it is imported. Torch-free."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from aotpipe.errors import TargetError

# Package: module.
_TOOLS: Final = {"torch": "torch", "iree-base-compiler": "iree.compiler", "jinja2": "jinja2"}


def require() -> None:
    """Say what to install where something is missing.

    Raises:
        TargetError: With the line to copy.
    """
    for package, module in _TOOLS.items():
        if not _is_there(module):
            raise TargetError(
                f"{package} is not installed, and building needs it", hint="pip install 'aotpipe[build]'"
            )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False  # its parent package is missing
