"""Whether what builds and XLA programs take is installed. Torch-free, and imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from aotpipe.errors import TargetError

_PACKAGES: Final[Mapping[str, tuple[str, str]]] = {
    "torch": ("torch", "build"),
    "jinja2": ("jinja2", "build"),
    "iree-base-compiler": ("iree.compiler", "build"),
    "jax": ("jax", "xla"),
    "jaxlib": ("jaxlib", "xla"),
    "libtpu": ("libtpu", "tpu"),
    "jax-cuda12-pjrt": ("jax_plugins.xla_cuda12", "cuda"),
    "jax-cuda12-plugin": ("jax_cuda12_plugin", "cuda"),
    "nvidia-cuda-nvcc-cu12": ("nvidia.cuda_nvcc", "cuda"),
}
"""By package, what it is imported as and the extra of aotpipe that installs it."""


def require(*packages: str) -> None:
    """Say what to install where a package is missing: of jax and jaxlib where none is named.

    Raises:
        TargetError: With the line to copy.
    """
    for package in packages or ("jax", "jaxlib"):
        module, extra = _PACKAGES[package]
        if not is_installed(module):
            needs = "building needs it" if extra == "build" else "XLA targets need it"
            raise TargetError(
                f"{package} is not installed, and {needs}", hint=f"pip install 'aotpipe[{extra}]'"
            )


def is_installed(module: str) -> bool:
    """Whether a module can be found; its parent package is imported, the module is not."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False  # its parent package is missing
