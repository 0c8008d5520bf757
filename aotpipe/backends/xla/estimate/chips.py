"""What is known of the chips that programs are made for without having one; `chips.toml` holds the table.

`chip(target)` gives a `Chip`, None for CPUs. `estimate(program, figures, chip)` gives a program's costs from
what `tool` wrote of it. `require_topology(target, mesh)` refuses a mesh that a target has no topology for,
and `topology(target, devices)` names that of so many devices. Torch-free.

`require_room` finds out before any compiler runs whether weights, state and inputs alone are too large for a
chip's memory. `overflow` reads from a compiler's words that the whole program is; None where it complains of
something else. Both tell it as a `DeviceMemoryExceeded` that names the largest tensors.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from typing import Any, Final

from aotpipe.core.estimate import Estimate, MatmulWork
from aotpipe.core.targets import Target
from aotpipe.core.units import size
from aotpipe.errors import Buffer, DeviceMemoryExceeded, MeshError
from aotpipe.runtime.xla.mesh import Mesh

BFLOAT16_PASSES: Final = {"default": 1, "high": 3, "highest": 6}
"""How often a TPU multiplies bfloat16 for one product of float32 (`jax.lax.Precision`)."""

_WIDER: Final[Mapping[str, tuple[str, ...]]] = {
    "bfloat16": ("float32",),
    "float16": ("bfloat16",),
    "int8": ("bfloat16",),
    "uint8": ("int8", "bfloat16"),
}
"""What a dtype is widened to where the unit for matrices lacks it; the rate is never below the real one."""


def _config(gpu: Mapping[str, Any], memory: int, bandwidth: float) -> str:
    """XLA's target config of a GPU, as the text form of its protocol buffer; `bandwidth` is in GB/s."""
    major, minor = gpu["cuda_compute_capability"].split(".")
    info = {
        **gpu,
        "cuda_compute_capability": {"major": major, "minor": minor},
        "device_memory_size": memory,
        "memory_bandwidth": int(bandwidth * 1e9),
    }
    dnn = dict(zip(("major", "minor", "patch"), gpu["dnn_version"].split("."), strict=True))
    return _text(
        {
            "gpu_device_info": info,
            "platform_name": "CUDA",
            "dnn_version_info": dnn,
            "device_description_str": gpu["name"],
        }
    )


def _text(message: Mapping[str, Any]) -> str:
    """A protocol buffer as text; numbers may be strings of digits."""
    parts = []
    for key, value in message.items():
        if isinstance(value, Mapping):
            parts.append(f"{key} {{ {_text(value)} }}")
        elif isinstance(value, str) and not value.isdecimal():
            parts.append(f'{key}: "{value}"')
        else:
            parts.append(f"{key}: {value}")
    return " ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """Peaks of what runs one program: a chip, or the part of it that its driver shows as one device.

    Attributes:
        rates: Operations a second on products of matrices, without sparsity, by the operands' dtype. Of a GPU
            `float32` and `float64` may be outside of its tensor cores; `tensorfloat32` is in them.
        bandwidth: Bytes a second from and to its memory.
        memory: Bytes.
        config: Of a GPU, what its compiler reads.
        topologies: Of TPUs, how many devices there are in each.
    """

    rates: Mapping[str, float]
    bandwidth: float
    memory: int
    source: str
    config: str = ""
    topologies: Mapping[str, int] = field(default_factory=dict)

    def rate(self, dtype: str, precision: str = "highest") -> float | None:
        """Operations a second on products of a dtype; None where nothing is published.

        `precision` is XLA's, which decides what float32 is multiplied as.
        """
        names = (dtype, *_WIDER.get(dtype, ()))
        if dtype == "float32" and "float32" not in self.rates:
            return self.rates["bfloat16"] / BFLOAT16_PASSES[precision]
        if dtype == "float32" and precision != "highest":
            names = ("tensorfloat32", "float32")
        return next((self.rates[name] for name in names if name in self.rates), None)


@cache
def _table() -> Mapping[str, Chip]:
    text = resources.files("aotpipe.backends.xla.estimate").joinpath("chips.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text)
    every_gpu = rows.pop("every-gpu")
    return {name: _chip(row, every_gpu) for name, row in rows.items()}


def _chip(row: Mapping[str, Any], every_gpu: Mapping[str, Any]) -> Chip:
    gpu = _config({**every_gpu, **row["gpu"]}, row["memory"], row["bandwidth"]) if "gpu" in row else ""
    parts = row.get("devices", 1)
    return Chip(
        rates={dtype: rate * 1e12 / parts for dtype, rate in row["rates"].items()},
        bandwidth=row["bandwidth"] * 1e9 / parts,
        memory=row["memory"] // parts,
        source=row["source"],
        config=gpu,
        topologies=row.get("topologies", {}),
    )


def chip(target: Target) -> Chip | None:
    """The chip of a target; None where the target is a CPU."""
    return _table().get(str(target))


def estimate(
    program: Mapping[str, Any], figures: Mapping[str, Any], chip: Chip | None, devices: int = 1
) -> Estimate:
    """What a program will cost, on each of its devices.

    A product counts at the rate of the chip's unit for matrices: float32 in full precision takes six passes
    of bfloat16 on a TPU, and runs outside of the tensor cores on a GPU. What is not a product is left out,
    since no TPU's rate for it is published, and so are temporaries, which may stay on the chip: the bound is
    one from below.

    `figures` are what was counted of one device: `flops`, `traffic_bytes`, other sizes in bytes, `loops` and
    `matmuls`. The program is for a CPU where there is no chip.
    """
    matmuls = tuple(
        MatmulWork(dtype=dtype, precision=precision, flops=flops)
        for dtype, precision, flops in sorted(figures["matmuls"])
    )
    known = {each.name for each in fields(Estimate)} - {"matmuls"}
    counted = {name: count for name, count in figures.items() if name in known}
    rates = [chip.rate(each.dtype, each.precision) if chip else None for each in matmuls]
    # What no rate is published for adds nothing, which keeps the bound one from below.
    seconds = [each.flops / rate for each, rate in zip(matmuls, rates, strict=True) if rate]
    return Estimate(
        entry_point=program["entry_point"],
        sizes=dict(program["sizes"]),
        devices=devices,
        matmuls=matmuls,
        **counted,
        memory_bytes=chip.memory if chip else 0,
        compute_s=sum(seconds, start=0.0),
        memory_s=counted["traffic_bytes"] / chip.bandwidth if chip else 0.0,
    )


def require_topology(target: Target, mesh: Mesh) -> None:
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


def topology(target: Target, devices: int) -> str:
    """The topology that a target's programs are compiled for, as far as it has some of so many devices."""
    driver = target.row.driver
    if devices == 1 or target.device != "tpu":
        return driver
    shape = next(shape for shape, count in _topologies(target).items() if count == devices)
    return f"{driver.partition(':')[0]}:{shape}"


def _topologies(target: Target) -> Mapping[str, int]:
    known = chip(target)
    assert known is not None, target
    return known.topologies


_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE: Final = r"([\d.]+)([KMGT]?)"
# libtpu has said it in both ways.
_OVERFLOWS: Final = (
    re.compile(rf"Ran out of memory on HBM.*?\({_SIZE}\) exceeds available HBM \({_SIZE}\)", re.DOTALL),
    re.compile(rf"Ran out of memory in memory space hbm.*?Used {_SIZE} of {_SIZE} hbm", re.DOTALL),
)


def name_of(program: Mapping[str, Any]) -> str:
    """An entry point and its sizes, as `Lowered.largest` knows them."""
    sizes = (f"{name}={size}" for name, size in sorted(program["sizes"].items()))
    return " ".join([program["entry_point"], *sizes])


def require_room(program: Mapping[str, Any], target: Target, largest: Sequence[Buffer]) -> None:
    """Refuse a program whose arguments alone are more than the chip has.

    Raises:
        DeviceMemoryExceeded: Before anything is compiled.
    """
    known, needed = chip(target), program["arguments_bytes"]
    if known is not None and needed > known.memory:
        held = [each for each in largest if each.kind != "result"]
        raise _error(
            f"the weights, state and inputs of {name_of(program)!r} are {size(needed)}",
            target,
            (needed, known.memory),
            held,
        )


def overflow(
    words: str, program: Mapping[str, Any], target: Target, largest: Sequence[Buffer], log: str = ""
) -> DeviceMemoryExceeded | None:
    """The compiler's words as an error, where they tell of too little memory.

    `program` is its entry of the module's index.
    """
    found = next((match for pattern in _OVERFLOWS if (match := pattern.search(words))), None)
    if found is None:
        return None
    number, unit, limit, limit_unit = found.groups()
    needed, available = int(float(number) * _UNITS[unit]), int(float(limit) * _UNITS[limit_unit])
    says = f"the program {name_of(program)!r} takes {size(needed)} of memory"
    return _error(says, target, (needed, available), largest, log)


def _error(
    says: str, target: Target, sizes: tuple[int, int], largest: Sequence[Buffer], log: str = ""
) -> DeviceMemoryExceeded:
    needed, available = sizes
    rows = [
        f"{size(each.size_bytes):>9}  {each.kind} {each.name}{f', {each.where}' if each.where else ''}"
        for each in largest
    ]
    return DeviceMemoryExceeded(
        f"{says}, and {target} has {size(available)}",
        reason="\n".join(["its largest tensors:", *rows] if rows else []),
        hint=_remedy(target, needed, largest),
        where=next((each.where for each in largest if each.where), None),
        log=log,
        buffers=tuple(largest),
    )


def _remedy(target: Target, needed: int, largest: Sequence[Buffer]) -> str:
    held = sum(each.size_bytes for each in largest if each.kind in {"weight", "state"})
    smaller = (
        "hold the weights in fewer bytes: `model.bfloat16()`"
        if 2 * held > needed
        else "build it for smaller sizes: a smaller example, or smaller --buckets"
    )
    enough = [
        (each.memory, name)
        for name, each in _table().items()
        if Target.parse(name).device == target.device and each.memory > needed
    ]
    _, larger = min(enough, default=(0, ""))
    return f"{smaller}; or take a chip with more memory: -t {larger}" if larger else smaller
