"""numpy arrays <-> IREE buffers in host memory: element types, upload, download.

Raises `ProgramCrashed` where a program's result is not what its signature says. Neither torch nor a compiler
is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any, Final

import iree.runtime as iree
import numpy as np

from aotpipe.dtypes import Array
from aotpipe.errors import ProgramCrashed

_ELEMENTS: Final[Mapping[str, Any]] = {
    "bool": iree.HalElementType.BOOL_8,
    "uint8": iree.HalElementType.UINT_8,
    "uint16": iree.HalElementType.UINT_16,
    "uint32": iree.HalElementType.UINT_32,
    "uint64": iree.HalElementType.UINT_64,
    "int8": iree.HalElementType.SINT_8,
    "int16": iree.HalElementType.SINT_16,
    "int32": iree.HalElementType.SINT_32,
    "int64": iree.HalElementType.SINT_64,
    "float16": iree.HalElementType.FLOAT_16,
    "bfloat16": iree.HalElementType.BFLOAT_16,
    "float32": iree.HalElementType.FLOAT_32,
    "float64": iree.HalElementType.FLOAT_64,
    "complex64": iree.HalElementType.COMPLEX_64,
    "complex128": iree.HalElementType.COMPLEX_128,
    "float8_e4m3fn": iree.HalElementType.FLOAT_8_E4M3_FN,
    "float8_e5m2": iree.HalElementType.FLOAT_8_E5M2,
}
# Memory of the device that is also the host's: mapped, it is read without another copy.
_MEMORY: Final = int(iree.MemoryType.DEVICE_LOCAL | iree.MemoryType.HOST_VISIBLE)
_USAGE: Final = int(iree.BufferUsage.DEFAULT | iree.BufferUsage.MAPPING)


def element(dtype: np.dtype[Any]) -> int:
    """IREE's code of an element type; raises KeyError for a dtype that no signature has."""
    return int(_ELEMENTS[dtype.name])


def uploader(device: Any) -> Callable[[Array, int], Any]:
    """A function from a contiguous array and its element type to a buffer view with a copy of it."""
    return partial(device.allocator.allocate_buffer_copy, _MEMORY, _USAGE, device)


def download(name: str, view: Any, dtype: np.dtype[Any]) -> Array:
    """Copy a result out of its buffer.

    Args:
        name: The output's name.
        view: Its buffer view.
        dtype: The signature's dtype; the view's own is not that: IREE gives uint8 back as int8.
    """
    shape = view.shape
    size_bytes = view.byte_length
    if size_bytes != prod(shape) * dtype.itemsize:
        raise ProgramCrashed(
            f"the program gave {size_bytes} bytes of shape {shape} for the output {name!r}, "
            f"which are not {dtype}"
        )
    # The array that views the mapping dangles once the view is gone, hence the copy.
    return mapped(view, dtype).copy()


def mapped(view: Any, dtype: np.dtype[Any]) -> Array:
    """The elements of a buffer view where they are: not to be used once the view is gone."""
    if not view.byte_length:
        return np.empty(view.shape, dtype)
    return np.frombuffer(view.map(), dtype).reshape(view.shape)


def truth(view: Any) -> bool:
    """The value of a 0-d bool."""
    return memoryview(view.map())[0] != 0


def address(view: Any) -> int:
    """Where a buffer view's elements begin."""
    return int(np.frombuffer(view.map(), np.uint8).ctypes.data)


class Copier:
    """Copies the elements of one buffer to another on a device."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._semaphore = device.create_semaphore(0)
        self._count = 0

    def __call__(self, source: Any, target: Any) -> None:
        """Copy between two buffer views of one size, and wait for it."""
        before = iree.HalFence.create_at(self._semaphore, self._count)
        self._count += 1
        after = iree.HalFence.create_at(self._semaphore, self._count)
        self._device.queue_copy(source.get_buffer(), target.get_buffer(), before, after)
        after.wait()
