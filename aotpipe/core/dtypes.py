"""Dtype names of a signature <-> numpy dtypes.

Torch-free. numpy lacks bfloat16 and the float8 types; ml_dtypes gives them. `name_of(numpy_dtype(name)) ==
name` for every name in `signature.DTYPES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import ml_dtypes  # noqa: F401  # registers its dtypes with numpy by their names
import numpy as np
from numpy.typing import NDArray

from aotpipe.core.signature import DTYPES

Array = NDArray[Any]

_BY_NAME: Final[Mapping[str, np.dtype[Any]]] = {name: np.dtype(name) for name in sorted(DTYPES)}
_NAMES: Final[Mapping[np.dtype[Any], str]] = {dtype: name for name, dtype in _BY_NAME.items()}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of a name in `signature.DTYPES`; raises KeyError for another."""
    return _BY_NAME[name]


def name_of(dtype: np.dtype[Any]) -> str | None:
    """The signature's name of a numpy dtype in native byte order, None where it has none."""
    return _NAMES.get(dtype)


def is_inexact(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is one of floats or complex numbers; numpy calls ml_dtypes' floats void."""
    return dtype.kind in "fc" or dtype.name.startswith(("bfloat16", "float8"))


def raw_bytes(array: Array) -> NDArray[np.uint8]:
    """A contiguous array's bytes as a flat view, without a copy."""
    return array.reshape(-1).view(np.uint8)
