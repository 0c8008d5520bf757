"""Dtype names of a signature <-> numpy dtypes.

Torch-free. numpy lacks bfloat16 and the float8 types; ml_dtypes gives them, and is imported once one of them
is asked for. `name_of(numpy_dtype(name)) == name` for every name in `signature.DTYPES`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aotpipe.core.signature import DTYPES

Array = NDArray[Any]

_LACKING: Final = frozenset({"bfloat16", "float8_e4m3fn", "float8_e5m2"})
_BY_NAME: Final[Mapping[str, np.dtype[Any]]] = {name: np.dtype(name) for name in sorted(DTYPES - _LACKING)}
_NAMES: Final[Mapping[np.dtype[Any], str]] = {dtype: name for name, dtype in _BY_NAME.items()}


@cache
def _added() -> dict[str, np.dtype[Any]]:
    """The dtypes that numpy lacks."""
    import ml_dtypes

    return {name: np.dtype(getattr(ml_dtypes, name)) for name in sorted(_LACKING)}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of a name in `signature.DTYPES`; raises KeyError for another."""
    return _added()[name] if name in _LACKING else _BY_NAME[name]


def name_of(dtype: np.dtype[Any]) -> str | None:
    """The signature's name of a numpy dtype in native byte order, None where it has none."""
    if (name := _NAMES.get(dtype)) is None and "ml_dtypes" in sys.modules:
        name = next((name for name, added in _added().items() if added == dtype), None)
    return name


def is_inexact(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is one of floats or complex numbers; numpy calls ml_dtypes' floats void."""
    return dtype.kind in "fc" or dtype.name.startswith(("bfloat16", "float8"))


def raw_bytes(array: Array) -> NDArray[np.uint8]:
    """A contiguous array's bytes as a flat view, without a copy."""
    return array.reshape(-1).view(np.uint8)
