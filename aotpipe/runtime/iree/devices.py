"""The IREE devices of this process, made once each and shared by all runners, and their memory.

`local-sync` runs a program in the thread that calls it, `local-task` on a pool of threads. Both keep the
buffers that a call lets go for the next one, which asks for the same sizes: `release` gives them back. So
does `cuda`, whose device a thread must `enter` before it calls it.
A `Memory` has numpy arrays in a device's buffers and back: in the host's memory, or in a GPU's own.

Neither torch nor a compiler is imported. Raises `IncompatibleHost` where a driver is not there, and
`ProgramCrashed` where a program's result is not what its signature says.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from math import prod
from typing import Any, Final

import iree.runtime as iree
import numpy as np

# The driver registry of the public API keeps one device per driver, with the number of threads of the first;
# this makes a driver of its own.
from iree.runtime._binding import create_hal_driver
from iree.runtime.dtypes import map_dtype_to_hal_element_type

from aotpipe.core.dtypes import Array, numpy_dtype
from aotpipe.core.signature import UNBOUNDED, Signature, largest_sizes
from aotpipe.errors import IncompatibleHost, ProgramCrashed
from aotpipe.runtime.dim_binding import size_of

# Handing the work to other threads costs 25 us a call: about the time in which one thread reads this much.
_SMALL_BYTES: Final = 1 << 20
# A program that waits for its kernels, to decide a branch or a trip of a loop, hands over several times in a
# call: an LSTM of 1 MB takes 1.8 of the time on two threads, one of 3.5 MB as long.
_WAITS: Final = 4
# An input's byte is worked on more often than a weight's in a call: every weight of a convolution meets it.
_INPUT_FACTOR: Final = 16
# Products that one thread has done with before two would be, which wait for each other in each dispatch. On
# Zen 5 with AVX-512 programs of 4 to 8 million take 0.5 to 1.05 of the least time of two threads, and of 16
# to 42 million 0.9 to 1.5 (0.6 to 0.9 of the median). More threads than two save up to twice as much.
_FEW_PRODUCTS: Final = 14 << 20
_CUDA_MAJOR: Final = 75  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
_CUDA_MINOR: Final = 76

_REMEDIES: Final[Mapping[str, str]] = {
    "cuda": ": libcuda.so.1 comes with NVIDIA's driver of the kernel",
    "hip": ": libamdhip64.so comes with ROCm, for an AMD GPU",
    "metal": ": that of macOS has it",
    "vulkan": ": install libvulkan1 and the GPU's driver, or mesa-vulkan-drivers, which runs on the CPU",
}
# Memory of the device that is also the host's: mapped, it is read without another copy.
_SHARED: Final = int(iree.MemoryType.DEVICE_LOCAL | iree.MemoryType.HOST_VISIBLE)
_SHARED_USAGE: Final = int(iree.BufferUsage.DEFAULT | iree.BufferUsage.MAPPING)
# A GPU's own memory: what is mapped there may be read over the bus at every access, or not at all.
_LOCAL: Final = int(iree.MemoryType.DEVICE_LOCAL)
_LOCAL_USAGE: Final = int(iree.BufferUsage.DEFAULT)
# What a GPU copies results to, for the host to read.
_STAGING: Final = int(iree.MemoryType.HOST_LOCAL | iree.MemoryType.DEVICE_VISIBLE)
_STAGING_USAGE: Final = int(iree.BufferUsage.TRANSFER | iree.BufferUsage.MAPPING)

# Whose buffers are kept. CUDA takes 0.5 to 1 ms to allocate an input, or the pinned memory that a result is
# read from: on an H200, calls of small programs took 4 to 30 times as long.
_KEEPS: Final = ("local-sync", "local-task", "cuda")

_lock = threading.Lock()
_devices: dict[tuple[str, int | None], Any] = {}
# CUDA's context is current in the thread that made the device. IREE calls CUDA in whichever thread calls it,
# and fails in any other with "invalid device context".
_contexts: dict[str, int] = {}


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for each in _devices.values():
        # Their destructors wait for threads that the child does not have: they are never to run.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    _devices.clear()
    _contexts.clear()


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
    """`local-sync` where one thread is all there is or a call takes little, else `local-task`.

    One thread per core is wanted where None; `waits` says that its calls wait for kernels on the way.
    """
    each = list(signatures)
    inputs = max(map(_largest_inputs_bytes, each), default=0)
    array_bytes = sum(array.nbytes for array in (*weights.values(), *state.values()))
    small = array_bytes + _INPUT_FACTOR * inputs < _SMALL_BYTES * (_WAITS if waits else 1)
    count = threads or cores()
    if small or count == 1:
        return "local-sync"
    products = [signature.products for signature in each]
    saved = 2 * (1 - 1 / count)
    few = all(products) and max(products) * saved < _FEW_PRODUCTS
    return "local-sync" if few else "local-task"


def _largest_inputs_bytes(signature: Signature) -> int:
    sizes = largest_sizes(signature)
    # A symbol may have no range, and a form no value.
    shapes = [[size_of(dim, sizes) for dim in spec.dims] for spec in signature.tensor_inputs]
    return sum(
        prod(UNBOUNDED if size is None else size for size in shape) * numpy_dtype(spec.dtype).itemsize
        for shape, spec in zip(shapes, signature.tensor_inputs, strict=True)
    )


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

    `arch` is what the program is for: of CUDA the least that the GPU must be.
    """
    found, problem = _found(driver)
    if not found:
        return problem
    if driver == "cuda" and arch.startswith("sm_"):
        least, here = int(arch.removeprefix("sm_")), cuda_capability()
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


def cuda_capability(library: Any = None) -> int:
    """The compute capability of the first GPU as in its architecture's name: 90 of `sm_90`.

    `library` is `libcuda`, opened; it is looked for where None.

    Raises:
        IncompatibleHost: There is no such library, or it refuses.
    """
    try:
        cuda = library or _cuda()
    except OSError as error:
        raise IncompatibleHost("this machine has no NVIDIA driver", reason=str(error)) from error
    major, minor = ctypes.c_int(), ctypes.c_int()
    status = (
        cuda.cuInit(0)
        or cuda.cuDeviceGetAttribute(ctypes.byref(major), _CUDA_MAJOR, 0)
        or cuda.cuDeviceGetAttribute(ctypes.byref(minor), _CUDA_MINOR, 0)
    )
    if status:
        raise IncompatibleHost("the NVIDIA driver does not answer", reason=f"CUDA error {status}")
    return 10 * major.value + minor.value


def device(driver: str, threads: int | None = None) -> Any:
    """The device of a driver.

    `local-task` has so many threads, or one per core that this process may use.

    Raises:
        IncompatibleHost: The driver or its device is not there.
    """
    key = (driver, threads if driver == "local-task" else None)
    with _lock:
        if key not in _devices:
            _devices[key] = _create(*key)
        return _devices[key]


@cache
def _cuda() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def enter(driver: str) -> None:
    """Let this thread call a driver's device, whichever thread made it.

    Raises:
        IncompatibleHost: The NVIDIA driver refuses.
    """
    context = _contexts.get(driver)
    if context and (status := _cuda().cuCtxSetCurrent(ctypes.c_void_p(context))):
        raise IncompatibleHost("the NVIDIA driver does not answer", reason=f"CUDA error {status}")


def _note_context(driver: str) -> None:
    """Note the context that a device was made with, in the thread that made it."""
    if driver == "cuda":
        context = ctypes.c_void_p()
        if not _cuda().cuCtxGetCurrent(ctypes.byref(context)) and context.value:
            _contexts[driver] = context.value


def release(device: Any) -> None:
    """Give back the memory that a device keeps for calls of the same sizes."""
    device.allocator.trim()


def _create(driver: str, threads: int | None) -> Any:
    if driver == "local-task":
        iree.flags.parse_flags(
            f"--task_topology_group_count={threads or 0}", f"--task_topology_max_group_count={cores()}"
        )
    # glibc maps large buffers anew in each call, and their page faults take longer than the kernels on them.
    allocators = ["caching"] if driver in _KEEPS else None
    try:
        made = create_hal_driver(driver).create_default_device(allocators)
    except (RuntimeError, ValueError) as error:
        raise IncompatibleHost(
            f"IREE's driver {driver!r} does not work on this host",
            reason=str(error).strip().partition("\n")[0],
            hint=f"the drivers of this runtime: {', '.join(iree.query_available_drivers())}",
        ) from error
    _note_context(driver)
    return made


def element(dtype: np.dtype[Any]) -> int:
    """IREE's code of an element type; raises KeyError for a dtype that no signature has."""
    code = map_dtype_to_hal_element_type(dtype)
    if code is None:
        raise KeyError(dtype.name)
    return int(code)


class Memory:
    """The memory of a device.

    Attributes:
        is_shared: Whether its buffers can be read where they are.
        upload: A function from a contiguous array and its element type to a buffer view with a copy of it.
        allocate: A function from a number of bytes, of at least 1, to a buffer.
    """

    def __init__(self, device: Any, *, is_shared: bool) -> None:
        self.is_shared = is_shared
        kind = (_SHARED, _SHARED_USAGE) if is_shared else (_LOCAL, _LOCAL_USAGE)
        self.upload: Callable[[Array, int], Any] = partial(
            device.allocator.allocate_buffer_copy, *kind, device
        )
        self.allocate: Callable[[int], Any] = partial(device.allocator.allocate_buffer, *kind)
        self._device = device
        self._semaphore = device.create_semaphore(0)
        self._count = 0

    def download(self, name: str, view: Any, dtype: np.dtype[Any]) -> Array:
        """Copy a result out of its buffer.

        `dtype` is the signature's; the view's own is not that: IREE gives uint8 back as int8.

        Raises:
            ProgramCrashed: The buffer's bytes are not an array of that dtype.
        """
        shape = view.shape
        size_bytes = view.byte_length
        if size_bytes != prod(shape) * dtype.itemsize:
            raise ProgramCrashed(
                f"the program gave {size_bytes} bytes of shape {shape} for the output {name!r}, "
                f"which are not {dtype}"
            )
        memory = memoryview(self._read(view))
        if memory.nbytes != size_bytes:  # where its elements lie between others' is not said
            raise ProgramCrashed(
                f"the program gave a buffer of {memory.nbytes} bytes for the output {name!r} of {size_bytes}"
            )
        # The array that views the mapping dangles once the view is gone, hence the copy.
        return np.frombuffer(memory, dtype).reshape(shape).copy()

    def truth(self, view: Any) -> bool:
        """The value of a 0-d bool."""
        return memoryview(self._read(view))[0] != 0

    def copied(self, view: Any, dtype: np.dtype[Any]) -> Any:
        """A new buffer view with a copy of another's elements."""
        if self.is_shared:
            return self.upload(np.frombuffer(self._read(view), dtype).reshape(view.shape), element(dtype))
        buffer = self.allocate(max(1, view.byte_length))
        if view.byte_length:
            self._copy(view.get_buffer(), buffer)
        return iree.HalBufferView(buffer, view.shape, element(dtype))

    def copy(self, source: Any, target: Any) -> None:
        """Copy the elements of one buffer view to another of the same size, and wait for it."""
        self._copy(source.get_buffer(), target.get_buffer())

    def address(self, view: Any) -> int | None:
        """Where a buffer view's elements begin; None where only the device can tell."""
        return int(np.frombuffer(view.map(), np.uint8).ctypes.data) if self.is_shared else None

    def _read(self, view: Any) -> Any:
        """The bytes of a view, not to be used once the view is gone."""
        if not view.byte_length:
            return b""
        if self.is_shared:
            return view.map()
        staged = self._device.allocator.allocate_buffer(_STAGING, _STAGING_USAGE, view.byte_length)
        self._copy(view.get_buffer(), staged)
        return staged.map()

    def _copy(self, source: Any, target: Any) -> None:
        before = iree.HalFence.create_at(self._semaphore, self._count)
        self._count += 1
        after = iree.HalFence.create_at(self._semaphore, self._count)
        self._device.queue_copy(source, target, before, after)
        after.wait()
