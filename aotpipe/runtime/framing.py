"""Messages between two processes: a JSON object and named arrays, without pickle.

A message is the header's length (8 bytes, little-endian), the header, then each array's bytes in the
header's order. Reading takes an optional deadline; `EOFError` says that the other side is gone,
`TimeoutError` that it is late.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from aotpipe.core.dtypes import Array, numpy_dtype, raw_bytes

_ARRAYS: Final = "__arrays__"
_CHUNK: Final = 1 << 20


def send(fd: int, message: Mapping[str, Any], arrays: Mapping[str, Array] | None = None) -> None:
    """Write a message; raises BrokenPipeError where nobody reads."""
    dense = {name: np.asarray(array, order="C") for name, array in (arrays or {}).items()}
    described = [(name, array.dtype.name, array.shape) for name, array in dense.items()]
    header = json.dumps({**message, _ARRAYS: described}).encode()
    _write(fd, memoryview(len(header).to_bytes(8, "little") + header))
    for array in dense.values():
        _write(fd, raw_bytes(array).data)


def receive(fd: int, *, deadline: float | None = None) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read a message.

    Args:
        fd: Where from.
        deadline: A time of `time.monotonic()`.
    """
    length = int.from_bytes(_read(fd, 8, deadline), "little")
    message: dict[str, Any] = json.loads(bytes(_read(fd, length, deadline)))
    arrays = {}
    for name, dtype, shape in message.pop(_ARRAYS):
        array = np.empty(shape, numpy_dtype(dtype))
        array.reshape(-1).view(np.uint8)[:] = np.frombuffer(_read(fd, array.nbytes, deadline), np.uint8)
        arrays[name] = array
    return message, arrays


def _write(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data[:_CHUNK]) :]


def _read(fd: int, size: int, deadline: float | None) -> bytearray:
    data = bytearray()
    while len(data) < size:
        if deadline is not None:
            ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
        piece = os.read(fd, min(_CHUNK, size - len(data)))
        if not piece:
            raise EOFError
        data += piece
    return data
