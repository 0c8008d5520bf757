"""Whether what XLA programs take is installed. Torch-free, and imports nothing heavy."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from aotpipe.errors import TargetError

# Package -> what installs it.
_EXTRAS: Final = {"jax": "xla", "jaxlib": "xla", "libtpu": "tpu"}


def require(*packages: str) -> None:
    """Say what to install where a package is missing.

    Args:
        packages: jax and jaxlib where none is named.

    Raises:
        TargetError: With the line to copy.
    """
    for package in packages or ("jax", "jaxlib"):
        if find_spec(package) is None:
            raise TargetError(
                f"{package} is not installed, and XLA targets need it",
                hint=f"pip install 'aotpipe[{_EXTRAS[package]}]'",
            )
