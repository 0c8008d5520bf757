"""Arrays on XLA's devices, by jaxlib alone: numpy arrays in, numpy arrays out. Torch-free."""
# ruff: noqa: SLF001  # what jax itself uses of the bindings has no public names

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aotpipe.backends.xla import clients
from aotpipe.dtypes import Array


@dataclass(frozen=True, slots=True)
class _Type:
    """What the bindings ask of an array's type."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    weak_type: bool = False


class Placer:
    """Puts arrays on one device; those that the device can read where they are stay there."""

    def __init__(self, device: Any) -> None:
        xla = clients.bindings()

        base: Any = xla.SingleDeviceSharding

        class OneDevice(base):
            """What jax's own class adds to that of the bindings, as far as they use it."""

            memory_kind = None

            def _to_xla_hlo_sharding(self, _rank: int) -> Any:
                return xla.HloSharding.replicate()

        OneDevice._internal_device_list = xla.DeviceList((device,))
        self._put = xla.batched_device_put
        self._sharding = OneDevice(device)
        self._devices = [device]
        self._semantics = xla.HostBufferSemantics.ZERO_COPY

    def __call__(self, array: Array) -> Any:
        """A buffer of the array's values; the array must not change while the buffer lives."""
        kind = _Type(array.shape, array.dtype)
        return self._put(
            kind, self._sharding, [array], self._devices, True, False, self._semantics, enable_x64=True
        )


def fetch(buffer: Any) -> Array:
    """A copy of a buffer's values."""
    array, _ = buffer._single_device_array_to_np_array_did_copy()
    own: Array = np.array(array, copy=True, order="C")
    return own


def truth(buffer: Any) -> bool:
    """The value of a bool."""
    return bool(buffer._single_device_array_to_np_array_did_copy()[0])
