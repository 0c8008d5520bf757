"""The IREE devices of this process: made once each, shared by all runners.

`local-sync` runs a program in the thread that calls it, `local-task` on a pool of threads. Both keep the
buffers that a call lets go for the next one, which asks for the same sizes: `release` gives them back.
Neither torch nor a compiler is imported. Raises `IncompatibleHost` where a driver is not there.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from math import prod
from typing import Any, Final

import iree.runtime as iree

# The driver registry of the public API keeps one device per driver, with the number of threads of the first;
# this makes a driver of its own.
from iree.runtime._binding import create_hal_driver

from aotpipe.core.dtypes import Array, numpy_dtype
from aotpipe.core.signature import Dim, Signature, evaluate_dim
from aotpipe.errors import IncompatibleHost
from aotpipe.runtime.iree import nvidia

# Handing the work to other threads costs 25 us a call: about the time in which one thread reads this much.
_SMALL_BYTES: Final = 1 << 20
# A program that waits for its kernels, to decide a branch or a trip of a loop, hands over several times in a
# call: an LSTM of 1 MB takes 1.8 of the time on two threads, one of 3.5 MB as long.
_WAITS: Final = 4
# An input's byte is worked on more often than a weight's in a call: every weight of a convolution meets it.
_INPUT_FACTOR: Final = 16
# What a size is taken for that has no upper bound.
_UNBOUNDED: Final = 256

_REMEDIES: Final[Mapping[str, str]] = {
    "cuda": ": libcuda.so.1 comes with NVIDIA's driver of the kernel",
    "hip": ": libamdhip64.so comes with ROCm, for an AMD GPU",
    "metal": ": that of macOS has it",
    "vulkan": ": install libvulkan1 and the GPU's driver, or mesa-vulkan-drivers, which runs on the CPU",
}

_lock = threading.Lock()
_devices: dict[tuple[str, int | None], Any] = {}


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for each in _devices.values():
        # Their destructors wait for threads that the child does not have: they are never to run.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    _devices.clear()


os.register_at_fork(after_in_child=_after_fork)


@cache
def instance() -> Any:
    """The one VmInstance of this process."""
    return iree.VmInstance()


def cores() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose(
    signatures: Iterable[Signature],
    weights: Mapping[str, Array],
    state: Mapping[str, Array],
    threads: int | None,
    *,
    waits: bool = False,
) -> str:
    """`local-sync` where one thread is all there is or the model is small, else `local-task`.

    Args:
        signatures: Of the entry points.
        weights: By key.
        state: Likewise.
        threads: How many are wanted; one per core where None.
        waits: Whether its calls wait for kernels on the way.
    """
    inputs = max((_largest_inputs_bytes(signature) for signature in signatures), default=0)
    array_bytes = sum(array.nbytes for array in (*weights.values(), *state.values()))
    small = array_bytes + _INPUT_FACTOR * inputs < _SMALL_BYTES * (_WAITS if waits else 1)
    return "local-sync" if small or (threads or cores()) == 1 else "local-task"


def _largest_inputs_bytes(signature: Signature) -> int:
    sizes = {
        symbol.name: max(symbol.min, _UNBOUNDED) if symbol.max is None else symbol.max
        for symbol in signature.symbols
    }
    return sum(
        prod(_size(dim, sizes) for dim in spec.dims) * numpy_dtype(spec.dtype).itemsize
        for spec in signature.tensor_inputs
    )


def _size(dim: Dim, sizes: Mapping[str, int]) -> int:
    try:
        return evaluate_dim(dim, sizes)
    except (KeyError, ZeroDivisionError):  # a symbol without a range, or a form without a value there
        return _UNBOUNDED


def shares_memory(driver: str) -> bool:
    """Whether a driver's buffers are the host's own memory."""
    return driver.startswith("local-")


@cache
def names(driver: str) -> tuple[str, ...]:
    """The names of a driver's devices; none where the driver does not work."""
    return _found(driver)[0]


@cache
def why_unavailable(driver: str, arch: str = "") -> str:
    """What this host lacks to run a program on a driver's device, with the remedy; empty where it can.

    Args:
        driver: An IREE driver's name.
        arch: What the program is for: of CUDA the least that the GPU must be.
    """
    found, problem = _found(driver)
    if not found:
        return problem
    if driver == "cuda" and arch.startswith("sm_"):
        least, here = int(arch.removeprefix("sm_")), nvidia.capability()
        return f"it is for sm_{least} and newer, and this GPU is sm_{here}" if here < least else ""
    return ""


@cache
def _found(driver: str) -> tuple[tuple[str, ...], str]:
    if driver not in iree.query_available_drivers():
        return (), f"this iree-base-runtime has no {driver} driver{_REMEDIES.get(driver, '')}"
    try:
        rows = create_hal_driver(driver).query_available_devices()
    except (RuntimeError, ValueError):
        return (), f"{driver} does not work here{_REMEDIES.get(driver, '')}"
    problem = f"this machine has no {driver} device{_REMEDIES.get(driver, '')}"
    return tuple(row["name"] for row in rows), "" if rows else problem


def device(driver: str, threads: int | None = None) -> Any:
    """The device of a driver.

    Args:
        driver: An IREE driver's name.
        threads: Of `local-task`; None gives one per core that this process may use.

    Raises:
        IncompatibleHost: The driver or its device is not there.
    """
    key = (driver, threads if driver == "local-task" else None)
    with _lock:
        if key not in _devices:
            _devices[key] = _create(*key)
        return _devices[key]


def release(device: Any) -> None:
    """Give back the memory that a device keeps for calls of the same sizes."""
    device.allocator.trim()


def _create(driver: str, threads: int | None) -> Any:
    if driver == "local-task":
        iree.flags.parse_flags(
            f"--task_topology_group_count={threads or 0}", f"--task_topology_max_group_count={cores()}"
        )
    # glibc maps large buffers anew in each call, and their page faults take longer than the kernels on them.
    allocators = ["caching"] if shares_memory(driver) else None
    try:
        return create_hal_driver(driver).create_default_device(allocators)
    except (RuntimeError, ValueError) as error:
        raise IncompatibleHost(
            f"IREE's driver {driver!r} does not work on this host",
            reason=str(error).strip().partition("\n")[0],
            hint=f"the drivers of this runtime: {', '.join(iree.query_available_drivers())}",
        ) from error
