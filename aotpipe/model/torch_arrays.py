"""torch tensors <-> numpy arrays, bit for bit, for every dtype of a signature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch

from aotpipe.core.dtypes import Array, numpy_dtype

# numpy has these through ml_dtypes, which torch does not know; their bytes pass as they are.
_BY_BYTES: Final = frozenset({torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2})


def from_numpy(array: Array) -> torch.Tensor:
    """A tensor of its own memory."""
    dtype: torch.dtype = getattr(torch, array.dtype.name)
    own: Array = np.array(array, copy=True, order="C")
    if dtype in _BY_BYTES:
        return torch.from_numpy(own.reshape(-1).view(np.uint8)).view(dtype).reshape(own.shape)
    return torch.from_numpy(own)


def view_numpy(tensor: torch.Tensor) -> Array:
    """An array over the tensor's memory where that is dense and plain, else over a copy."""
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if dense.dtype in _BY_BYTES:
        name = str(dense.dtype).removeprefix("torch.")
        return dense.reshape(-1).view(torch.uint8).numpy().view(numpy_dtype(name)).reshape(dense.shape)
    plain: np.ndarray[Any, Any] = dense.numpy()
    return plain


def view_all(tensors: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    """View each tensor of a mapping as a numpy array."""
    return {key: view_numpy(tensor) for key, tensor in tensors.items()}


def to_numpy(leaf: object) -> Array | None:
    """An array of its own memory; a number as a 0-d array; None for anything else."""
    if isinstance(leaf, bool | int | float | complex):
        return np.asarray(leaf)
    return view_numpy(leaf).copy() if isinstance(leaf, torch.Tensor) else None


def extremes(tensor: torch.Tensor) -> tuple[Any, Any]:
    """The least and the greatest element, as Python numbers, of a tensor that has one; NaN where one is."""
    array = view_numpy(tensor)  # torch has neither for unsigned integers over 8 bits and for float8
    return array.min().item(), array.max().item()
