"""The memory of XLA's devices, by jaxlib alone: numpy arrays in, numpy arrays out. Torch-free.

Of one device nothing here makes jaxlib import jax, which takes a second and, while it lasts, holds a lock
that a forked child would wait for.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from aotpipe.core.dtypes import Array
from aotpipe.runtime import process
from aotpipe.runtime.xla import clients
from aotpipe.runtime.xla.mesh import Sharding

_MOST_TYPES: Final = 1024


@dataclass(frozen=True, slots=True)
class _Type:
    """What the bindings ask of an array's type."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    weak_type: bool = False


# A call asks for the same ones again and again.
_type = lru_cache(_MOST_TYPES)(_Type)


def _sharding(base: Any, annotation: Any, *args: Any, **attributes: Any) -> Any:
    """A sharding of the bindings with what jax's own class adds to it, as far as the bindings use that."""
    own = {"memory_kind": None, "_to_xla_hlo_sharding": lambda _, __: annotation, **attributes}
    return type("Annotated", (base,), own)(*args)


class Memory:
    """The memory of one device.

    What the device can read where it is stays there, unless it is told to take a copy.
    """

    def __init__(self, devices: Sequence[Any]) -> None:
        self._xla = clients.bindings()
        self._devices = list(devices)
        self._list = self._xla.DeviceList(tuple(devices))
        every = self._xla.HostBufferSemantics
        self._semantics = (every.ZERO_COPY, every.IMMUTABLE_ONLY_DURING_CALL)
        self._put = self._xla.batched_device_put
        self._whole = _sharding(
            self._xla.SingleDeviceSharding,
            self._xla.HloSharding.replicate(),
            self._devices[0],
            _internal_device_list=self._list,
        )

    def upload(self, array: Array, sharding: Sharding | None = None, *, copied: bool = False) -> Any:  # noqa: ARG002
        """A buffer with an array; unless it is `copied`, the array must not change while the buffer lives."""
        return self.upload_all([array], (), copied=copied)[0]

    def upload_all(
        self,
        arrays: Sequence[Array],
        shardings: Sequence[Sharding | None],  # noqa: ARG002  # those of a mesh
        *,
        copied: bool,
    ) -> list[Any]:
        """`upload` of several arrays."""
        put, whole, devices, semantics = self._put, self._whole, self._devices, self._semantics[copied]
        return [
            put(
                _type(array.shape, array.dtype),
                whole,
                [array],
                devices,
                True,
                False,
                semantics,
                enable_x64=True,
            )
            for array in arrays
        ]

    def results_of(self, executable: Any, places: Sequence[Any]) -> Any:  # noqa: ARG002  # those of a mesh
        """What `run` asks to know of an executable's results."""
        (module,) = executable.hlo_modules()
        computation = self._xla.XlaComputation(module.as_serialized_hlo_module_proto())
        result = computation.program_shape().result_shape()
        kinds = [
            _type(tuple(each.dimensions()), np.dtype(each.numpy_dtype()))
            for each in (result.tuple_shapes() if result.is_tuple() else [result])
        ]
        # Told the types, jaxlib asks jax for none.
        return [self._xla.array_result_handler(kind, self._whole, True, True) for kind in kinds]

    def run(self, executable: Any, arguments: Sequence[Any], results: Any) -> list[Any]:
        """The results of an executable; `results` is what `results_of` gave for it."""
        found: list[Any] = executable.execute_sharded(arguments).consume_with_handlers(results)
        return found

    def as_argument(self, result: Any, sharding: Sharding | None) -> Any:  # noqa: ARG002  # as of a mesh
        """A result as an argument of the next call."""
        return result

    def download(self, result: Any) -> Array:
        """A copy of a result."""
        try:
            return np.array(memoryview(result), order="C")
        except BufferError:  # its dtype is none of Python's
            result.block_until_ready()
            kind = result.aval
            size_bytes = math.prod(kind.shape) * kind.dtype.itemsize
            room = (ctypes.c_char * size_bytes).from_address(result.unsafe_buffer_pointer())
            return np.frombuffer(room, kind.dtype).reshape(kind.shape).copy()

    def truth(self, result: Any) -> bool:
        """The value of a bool."""
        return bool(memoryview(result)[()])


@dataclass(frozen=True, slots=True)
class ShardedArray:
    """A result in parts, one on each device."""

    parts: Sequence[Any]
    sharding: Sharding
    shape: tuple[int, ...]


class MeshMemory(Memory):
    """The memory of the devices of a mesh, each of which has its part of every array."""

    def __init__(self, devices: Sequence[Any]) -> None:
        super().__init__(devices)
        self._xla_shardings: dict[str, Any] = {}

    def upload(self, array: Array, sharding: Sharding | None = None, *, copied: bool = False) -> Any:
        """A buffer on each device with its part of an array.

        Unless it is `copied`, it must not change while these live.
        """
        devices = range(len(self._devices))
        # All devices read one array where each has the whole of it.
        parts = (
            [array for _ in devices]
            if sharding is None or sharding.is_replicated
            else [np.ascontiguousarray(array[sharding.part(device, array.shape)]) for device in devices]
        )
        return self._spread(array.shape, array.dtype, sharding, parts, copied=copied)

    def upload_all(
        self, arrays: Sequence[Array], shardings: Sequence[Sharding | None], *, copied: bool
    ) -> list[Any]:
        """`upload` of several arrays."""
        return [
            self.upload(array, sharding, copied=copied)
            for array, sharding in zip(arrays, shardings, strict=False)
        ]

    def results_of(self, executable: Any, places: Sequence[Any]) -> Any:  # noqa: ARG002  # as of one device
        """What `run` asks to know of an executable's results: the sharding and the whole shape of each."""
        return places

    def run(self, executable: Any, arguments: Sequence[Any], results: Any) -> list[Any]:
        """The results of an executable; `results` is what `results_of` gave for it."""
        done = executable.execute_sharded(arguments)
        with process.forks_held():  # jaxlib has a lock of its own while it asks jax for the types
            parts = done.disassemble_into_single_device_arrays()
        return [ShardedArray(each, *place) for each, place in zip(parts, results, strict=True)]

    def as_argument(self, result: ShardedArray, sharding: Sharding | None) -> Any:
        """A result as an argument of the next call, where the devices have it in the argument's sharding."""
        return self._spread(result.shape, result.parts[0].aval.dtype, sharding, list(result.parts))

    def download(self, result: ShardedArray) -> Array:
        """A copy of the whole array of a result's parts."""
        first = super().download(result.parts[0])
        if result.sharding.is_replicated:
            return first
        whole = np.empty(result.shape, first.dtype)
        for device, buffer in enumerate(result.parts):
            room = whole[result.sharding.part(device, result.shape)]
            # Of a dim that the devices do not share evenly the last part is filled up.
            room[...] = super().download(buffer)[tuple(map(slice, room.shape))]
        return whole

    def truth(self, result: ShardedArray) -> bool:
        """The value of a bool, which every device has."""
        return super().truth(result.parts[0])

    def _spread(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        sharding: Sharding | None,
        parts: list[Any],
        *,
        copied: bool = False,
    ) -> Any:
        return self._put(
            _type(shape, np.dtype(dtype)),
            self._of_xla(sharding),
            parts,
            self._devices,
            True,
            False,
            self._semantics[copied],
            enable_x64=True,
        )

    def _of_xla(self, sharding: Sharding | None) -> Any:
        if sharding is None:
            return self._whole
        if sharding.text not in self._xla_shardings:
            annotation = self._xla.HloSharding.from_string(sharding.text)
            self._xla_shardings[sharding.text] = _sharding(
                self._xla.GSPMDSharding, annotation, self._list, annotation
            )
        return self._xla_shardings[sharding.text]


def memory(devices: Sequence[Any]) -> Memory:
    """The memory of some devices."""
    return Memory(devices) if len(devices) == 1 else MeshMemory(devices)
