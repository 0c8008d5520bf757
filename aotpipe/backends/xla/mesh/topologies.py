"""Which devices a mesh stands for on a target, and what their compiler is told. Torch-free.

`require(target, mesh)` refuses a mesh that a target has no topology for; `name(target, devices)` gives that
of so many devices. `chips.toml` lists those of each chip.
"""

from __future__ import annotations

from typing import Any

from aotpipe.backends.xla.estimate import chips
from aotpipe.core.targets import Target
from aotpipe.errors import MeshError
from aotpipe.runtime.xla.mesh import Mesh


def require(target: Target, mesh: Mesh) -> None:
    """Refuse a mesh that a target has no devices for.

    Raises:
        MeshError
    """
    if target.backend != "xla":
        raise MeshError(
            f"{target} has no mesh: an IREE program is for one device",
            hint="leave it out, or build for XLA targets only, such as xla-cpu-host or xla-tpu-v5e",
        )
    if target.device == "cuda":
        raise MeshError(
            f"{target} has no mesh: what its GPUs would be linked by is not described",
            hint="meshes are compiled for xla-cpu-* and xla-tpu-*",
        )
    if target.device == "tpu" and mesh.devices > 1 and mesh.devices not in _topologies(target).values():
        known = ", ".join(f"{name} ({count})" for name, count in _topologies(target).items())
        raise MeshError(
            f"{target} has no topology of {mesh.devices} devices, which the mesh {mesh} asks for",
            reason=f"the topologies, with how many devices each has, are: {known}",
            hint="take a mesh of as many devices as one of them has",
        )


def name(target: Target, devices: int) -> str:
    """The topology that a target's programs are compiled for, as far as it has some of so many devices."""
    driver = target.row.driver
    if devices == 1 or target.device != "tpu":
        return driver
    shape = next(shape for shape, count in _topologies(target).items() if count == devices)
    return f"{driver.partition(':')[0]}:{shape}"


def _topologies(target: Target) -> dict[str, int]:
    chip: Any = chips.chip(target)
    return dict(chip.topologies)
