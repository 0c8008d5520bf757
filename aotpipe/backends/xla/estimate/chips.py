"""What is known of the chips that programs are made for without having one; `chips.toml` holds the table.

Torch-free. `chip(target)` gives a `Chip`, None for CPUs; of a GPU, `Gpu.config` is what XLA's compiler reads.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Final

from aotpipe.core.targets import Target

_VERSIONS: Final = {"toolkit": "12.9.0", "dnn": "9.8.0"}
BFLOAT16_PASSES: Final = {"default": 1, "high": 3, "highest": 6}
"""How often a TPU multiplies bfloat16 for one product of float32 (`jax.lax.Precision`)."""

_WIDER: Final[Mapping[str, tuple[str, ...]]] = {
    "bfloat16": ("float32",),
    "float16": ("bfloat16",),
    "int8": ("bfloat16",),
    "uint8": ("int8", "bfloat16"),
}
"""What a dtype is widened to where the unit for matrices lacks it; the rate is never below the real one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU as its compiler asks for it: counts, sizes in bytes, and the clock in GHz."""

    name: str
    capability: str
    cores: int
    units_per_core: int
    threads_per_core: int
    shared_per_core: int
    shared_per_block: int
    l2: int
    clock: float

    def config(self, memory: int, bandwidth: float) -> str:
        """XLA's target config, as the text form of its protocol buffer."""
        major, minor = self.capability.split(".")
        dnn = dict(zip(("major", "minor", "patch"), _VERSIONS["dnn"].split("."), strict=True))
        info = {
            "name": self.name,
            "device_vendor": "NVIDIA Corporation",
            "device_address_bits": 64,
            "cuda_compute_capability": {"major": major, "minor": minor},
            "core_count": self.cores,
            "fpus_per_core": self.units_per_core,
            "clock_rate_ghz": self.clock,
            "threads_per_warp": 32,
            "threads_per_block_limit": 1024,
            "threads_per_core_limit": self.threads_per_core,
            "registers_per_core_limit": 65536,
            "registers_per_block_limit": 65536,
            "shared_memory_per_core": self.shared_per_core,
            "shared_memory_per_block": 49152,
            "shared_memory_per_block_optin": self.shared_per_block,
            "thread_dim_limit_x": 1024,
            "thread_dim_limit_y": 1024,
            "thread_dim_limit_z": 64,
            "block_dim_limit_x": 2**31 - 1,
            "block_dim_limit_y": 65535,
            "block_dim_limit_z": 65535,
            "l2_cache_size": self.l2,
            "device_memory_size": memory,
            "memory_bandwidth": int(bandwidth * 1e9),
            "driver_version": _VERSIONS["toolkit"],
            "runtime_version": _VERSIONS["toolkit"],
            "compile_time_toolkit_version": _VERSIONS["toolkit"],
            "dnn_version": _VERSIONS["dnn"],
        }
        return _text(
            {
                "gpu_device_info": info,
                "platform_name": "CUDA",
                "dnn_version_info": dnn,
                "device_description_str": self.name,
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

        Args:
            dtype: Of the operands.
            precision: XLA's, which decides what float32 is multiplied as.
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
    return {name: _chip(row) for name, row in tomllib.loads(text).items()}


def _chip(row: Mapping[str, Any]) -> Chip:
    gpu = Gpu(**row["gpu"]).config(row["memory"], row["bandwidth"]) if "gpu" in row else ""
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


def with_memory(device: str, needed: int) -> str:
    """The target of a kind of device whose chip has the least memory that is enough; empty where none has.

    Args:
        device: Such as `tpu`.
        needed: Bytes.
    """
    enough = [
        (each.memory, name)
        for name, each in _table().items()
        if Target.parse(name).device == device and each.memory > needed
    ]
    return min(enough, default=(0, ""))[1]
