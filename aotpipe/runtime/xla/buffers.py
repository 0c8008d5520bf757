"""Arrays on XLA's devices, by jaxlib alone: numpy arrays in, numpy arrays out. Torch-free."""
# ruff: noqa: SLF001  # what jax itself uses of the bindings has no public names

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aotpipe.core.dtypes import Array
from aotpipe.runtime.xla import clients
from aotpipe.runtime.xla.mesh import Sharding


@dataclass(frozen=True, slots=True)
class _Type:
    """What the bindings ask of an array's type."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    weak_type: bool = False


def _sharding(base: Any, annotation: Any, *args: Any, **attributes: Any) -> Any:
    """A sharding of the bindings with what jax's own class adds to it, as far as the bindings use that."""
    own = {"memory_kind": None, "_to_xla_hlo_sharding": lambda _, __: annotation, **attributes}
    return type("Annotated", (base,), own)(*args)


class _Placer:
    """Puts arrays on devices; those that a device can read where they are stay there."""

    def __init__(self, devices: Sequence[Any]) -> None:
        self._xla = clients.bindings()
        self._devices = list(devices)
        self._semantics = self._xla.HostBufferSemantics.ZERO_COPY

    def _put(self, shape: tuple[int, ...], dtype: Any, sharding: Any, parts: list[Any]) -> Any:
        kind = _Type(shape, np.dtype(dtype))
        return self._xla.batched_device_put(
            kind, sharding, parts, self._devices, True, False, self._semantics, enable_x64=True
        )


class Placer(_Placer):
    """Puts arrays on one device."""

    def __init__(self, device: Any) -> None:
        super().__init__([device])
        xla = self._xla
        self._sharding = _sharding(
            xla.SingleDeviceSharding,
            xla.HloSharding.replicate(),
            device,
            _internal_device_list=xla.DeviceList((device,)),
        )

    def __call__(self, array: Array) -> Any:
        """A buffer of the array's values; the array must not change while the buffer lives."""
        return self._put(array.shape, array.dtype, self._sharding, [array])


def fetch(buffer: Any) -> Array:
    """A copy of a buffer's values."""
    array, _ = buffer._single_device_array_to_np_array_did_copy()
    own: Array = np.array(array, copy=True, order="C")
    return own


def truth(buffer: Any) -> bool:
    """The value of a bool."""
    return bool(buffer._single_device_array_to_np_array_did_copy()[0])


@dataclass(frozen=True, slots=True)
class ShardedArray:
    """A result in parts, one on each device."""

    parts: Sequence[Any]
    sharding: Sharding
    shape: tuple[int, ...]


class MeshPlacer(_Placer):
    """Puts arrays on the devices of a mesh, to each its part."""

    def __init__(self, devices: Sequence[Any]) -> None:
        super().__init__(devices)
        self._xla_shardings: dict[str, Any] = {}

    def __call__(self, array: Array, sharding: Sharding) -> Any:
        """A buffer on each device with its part of an array, which must not change while these live."""
        devices = range(len(self._devices))
        # All devices read one array where each has the whole of it.
        parts = (
            [array for _ in devices]
            if sharding.is_replicated
            else [np.ascontiguousarray(array[sharding.part(device, array.shape)]) for device in devices]
        )
        return self._put(array.shape, array.dtype, self._of_xla(sharding), parts)

    def as_argument(self, result: ShardedArray, sharding: Sharding) -> Any:
        """A result as an argument of the next call, where the devices have it in the argument's sharding."""
        return self._put(result.shape, result.parts[0].dtype, self._of_xla(sharding), list(result.parts))

    def _of_xla(self, sharding: Sharding) -> Any:
        if sharding.text not in self._xla_shardings:
            annotation = self._xla.HloSharding.from_string(sharding.text)
            devices = self._xla.DeviceList(tuple(self._devices))
            self._xla_shardings[sharding.text] = _sharding(
                self._xla.GSPMDSharding, annotation, devices, annotation
            )
        return self._xla_shardings[sharding.text]


def gathered(result: ShardedArray) -> Array:
    """The whole array of a result's parts."""
    first = fetch(result.parts[0])
    if result.sharding.is_replicated:
        return first
    whole = np.empty(result.shape, first.dtype)
    for device, buffer in enumerate(result.parts):
        place = result.sharding.part(device, result.shape)
        room = whole[place]
        # Of a dim that the devices do not share evenly the last part is filled up.
        room[...] = fetch(buffer)[tuple(map(slice, room.shape))]
    return whole
