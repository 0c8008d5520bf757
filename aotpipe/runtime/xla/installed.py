"""Whether what XLA programs take is installed. Torch-free, and imports nothing heavy."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from aotpipe.errors import TargetError

# Package -> what installs it.
_EXTRAS: Final = {
    "jax": "xla",
    "jaxlib": "xla",
    "libtpu": "tpu",
    "jax-cuda12-pjrt": "cuda",
    "jax-cuda12-plugin": "cuda",
    "nvidia-cuda-nvcc-cu12": "cuda",
}
# What a package is imported as, where that is not its name.
_MODULES: Final = {
    "jax-cuda12-pjrt": "jax_plugins.xla_cuda12",
    "jax-cuda12-plugin": "jax_cuda12_plugin",
    "nvidia-cuda-nvcc-cu12": "nvidia.cuda_nvcc",
}


def require(*packages: str) -> None:
    """Say what to install where a package is missing: of jax and jaxlib where none is named.

    Raises:
        TargetError: With the line to copy.
    """
    for package in packages or ("jax", "jaxlib"):
        if not is_installed(_MODULES.get(package, package)):
            raise TargetError(
                f"{package} is not installed, and XLA targets need it",
                hint=f"pip install 'aotpipe[{_EXTRAS[package]}]'",
            )


def is_installed(module: str) -> bool:
    """Whether a module can be found; its parent package is imported, the module is not."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False  # its parent package is missing
