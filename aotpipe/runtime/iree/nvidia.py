"""What the NVIDIA driver says of the first GPU, through its own library: no torch, no compiler."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from aotpipe.errors import IncompatibleHost

_MAJOR: Final = 75  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
_MINOR: Final = 76


def capability(library: Any = None) -> int:
    """The compute capability of the first GPU as in its architecture's name: 90 of `sm_90`.

    Args:
        library: `libcuda`, opened; looked for where None.

    Raises:
        IncompatibleHost: There is no such library, or it refuses.
    """
    try:
        cuda = library or ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise IncompatibleHost("this machine has no NVIDIA driver", reason=str(error)) from error
    value = ctypes.c_int()
    _require(cuda.cuInit(0))
    found = []
    for attribute in (_MAJOR, _MINOR):
        _require(cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0))
        found.append(value.value)
    return 10 * found[0] + found[1]


def _require(status: int) -> None:
    if status:
        raise IncompatibleHost("the NVIDIA driver does not answer", reason=f"CUDA error {status}")
