"""numpy arrays <-> IREE buffers, in host memory or in a GPU's: element types, upload, download, copies.

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

from aotpipe.core.dtypes import Array
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
_SHARED: Final = int(iree.MemoryType.DEVICE_LOCAL | iree.MemoryType.HOST_VISIBLE)
_SHARED_USAGE: Final = int(iree.BufferUsage.DEFAULT | iree.BufferUsage.MAPPING)
# A GPU's own memory: what is mapped there may be read over the bus at every access, or not at all.
_LOCAL: Final = int(iree.MemoryType.DEVICE_LOCAL)
_LOCAL_USAGE: Final = int(iree.BufferUsage.DEFAULT)
# What a GPU copies results to, for the host to read.
_STAGING: Final = int(iree.MemoryType.HOST_LOCAL | iree.MemoryType.DEVICE_VISIBLE)
_STAGING_USAGE: Final = int(iree.BufferUsage.TRANSFER | iree.BufferUsage.MAPPING)


def element(dtype: np.dtype[Any]) -> int:
    """IREE's code of an element type; raises KeyError for a dtype that no signature has."""
    return int(_ELEMENTS[dtype.name])


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

        Args:
            name: The output's name.
            view: Its buffer view.
            dtype: The signature's dtype; the view's own is not that: IREE gives uint8 back as int8.

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
        # The array that views the mapping dangles once the view is gone, hence the copy.
        return np.frombuffer(self._read(view), dtype).reshape(shape).copy()

    def truth(self, view: Any) -> bool:
        """The value of a 0-d bool."""
        return memoryview(self._read(view))[0] != 0

    def copied(self, view: Any, dtype: np.dtype[Any]) -> Any:
        """A new buffer view with a copy of another's elements."""
        if self.is_shared:
            return self.upload(np.frombuffer(self._read(view), dtype).reshape(view.shape), element(dtype))
        buffer = self._device.allocator.allocate_buffer(_LOCAL, _LOCAL_USAGE, max(1, view.byte_length))
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
