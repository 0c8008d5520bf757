"""The memory of XLA's devices, by jaxlib alone: numpy arrays in, numpy arrays out. Torch-free."""
# ruff: noqa: SLF001  # what jax itself uses of the bindings has no public names

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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


@dataclass(frozen=True, slots=True)
class ShardedArray:
    """A result in parts, one on each device; one device has the whole of it, and no sharding."""

    parts: Sequence[Any]
    sharding: Sharding | None = None
    shape: tuple[int, ...] = ()


class Memory:
    """The memory of devices, each of which has its part of every array; one has the whole, and no sharding.

    What a device can read where it is stays there, unless it is told to take a copy.
    """

    def __init__(self, devices: Sequence[Any]) -> None:
        self._xla = clients.bindings()
        self._devices = list(devices)
        self._list = self._xla.DeviceList(tuple(devices))
        self._xla_shardings: dict[str, Any] = {}

    @cached_property
    def _whole(self) -> Any:
        return _sharding(
            self._xla.SingleDeviceSharding,
            self._xla.HloSharding.replicate(),
            self._devices[0],
            _internal_device_list=self._list,
        )

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
        return self._put(array.shape, array.dtype, sharding, parts, copied=copied)

    def results(self, parts: Sequence[Sequence[Any]], places: Sequence[Any]) -> list[ShardedArray]:
        """The results of a program, of which each device gave its part.

        `parts` is by result, and of each by device; `places` has the sharding and the whole shape of each
        result on several devices, and is empty on one.
        """
        pairs = zip(parts, places or [()] * len(parts), strict=True)
        return [ShardedArray(each, *place) for each, place in pairs]

    def as_argument(self, result: ShardedArray, sharding: Sharding | None) -> Any:
        """A result as an argument of the next call, where the devices have it in the argument's sharding."""
        if sharding is None:
            return result.parts[0]
        return self._put(result.shape, result.parts[0].dtype, sharding, list(result.parts))

    def download(self, result: ShardedArray) -> Array:
        """A copy of the whole array of a result's parts."""
        first: Array = np.array(_view(result.parts[0]), copy=True, order="C")
        if result.sharding is None or result.sharding.is_replicated:
            return first
        whole = np.empty(result.shape, first.dtype)
        for device, buffer in enumerate(result.parts):
            room = whole[result.sharding.part(device, result.shape)]
            # Of a dim that the devices do not share evenly the last part is filled up.
            room[...] = _view(buffer)[tuple(map(slice, room.shape))]
        return whole

    def truth(self, result: ShardedArray) -> bool:
        """The value of a bool, which every device has."""
        return bool(_view(result.parts[0]))

    def _put(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        sharding: Sharding | None,
        parts: list[Any],
        *,
        copied: bool = False,
    ) -> Any:
        kind, placed = _Type(shape, np.dtype(dtype)), self._of_xla(sharding)
        every = self._xla.HostBufferSemantics
        semantics = every.IMMUTABLE_ONLY_DURING_CALL if copied else every.ZERO_COPY
        return self._xla.batched_device_put(
            kind, placed, parts, self._devices, True, False, semantics, enable_x64=True
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


def _view(buffer: Any) -> Array:
    """What one device has of an array, not to be used once the buffer is gone."""
    array: Array = buffer._single_device_array_to_np_array_did_copy()[0]
    return array
