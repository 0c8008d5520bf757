"""Tensors and arrays of every dtype."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotpipe.core.dtypes import numpy_dtype
from aotpipe.core.signature import DTYPES
from aotpipe.model.torch_arrays import extremes, from_numpy, to_numpy, view_numpy


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
def test_every_dtype_passes_bit_for_bit(dtype: str, shape: tuple[int, ...]) -> None:
    array = (np.arange(np.prod(shape)).reshape(shape) % 2).astype(numpy_dtype(dtype))
    tensor = from_numpy(array)
    assert str(tensor.dtype) == f"torch.{dtype}"
    again = to_numpy(tensor)
    assert again is not None
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert again.tobytes() == array.tobytes()


def test_a_copy_is_a_copy_and_a_view_a_view() -> None:
    tensor = torch.zeros(2)
    copy, view = to_numpy(tensor), view_numpy(tensor)
    tensor += 1
    assert copy is not None
    assert copy.tolist() == [0, 0]
    assert view.tolist() == [1, 1]


def test_lazy_conjugates_and_strides_are_resolved() -> None:
    tensor = torch.tensor([[1 + 2j, 3 + 4j]]).T.conj()
    assert view_numpy(tensor).tolist() == [[1 - 2j], [3 - 4j]]


def test_numbers_become_scalars_and_the_rest_nothing() -> None:
    assert to_numpy(True).dtype == np.bool_  # type: ignore[union-attr]
    assert to_numpy(3).shape == ()  # type: ignore[union-attr]
    assert to_numpy(None) is None
    assert to_numpy("x") is None


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_the_extremes_of_every_ordered_dtype(dtype: str) -> None:
    tensor = from_numpy(np.array([[0, 1], [1, 0]]).astype(numpy_dtype(dtype)))
    assert extremes(tensor) == (0, 1)
