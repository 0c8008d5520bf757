"""Arrays that numpy makes of sizes are tensors of the graph, and of numbers that are known stay numpy's."""

from __future__ import annotations

import numpy as np
import torch

from aotpipe.canonicalize.operators import numpy_calls


def test_an_array_of_sizes_is_a_tensor_of_whole_numbers_or_of_floats() -> None:
    whole = numpy_calls.as_torch_takes_it(np.array([2, 3], dtype=object))
    assert torch.equal(whole, torch.tensor([2, 3]))
    real = numpy_calls.as_torch_takes_it(np.array([2, 0.5], dtype=object))
    assert torch.equal(real, torch.tensor([2.0, 0.5], dtype=torch.float64))


def test_what_is_no_array_of_sizes_stays_what_it_is() -> None:
    array = np.arange(3)
    assert numpy_calls.as_torch_takes_it(array) is array
    assert numpy_calls.method(len) is None


def test_of_known_numbers_numpy_makes_its_own_arrays() -> None:
    made = numpy_calls.method(np.hanning)
    assert made is not None
    found = made(4)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, np.hanning(4))
