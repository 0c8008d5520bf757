"""Arrays go to the device and come back, every dtype bit for bit."""

import ml_dtypes
import numpy as np
import pytest

from aotpipe.backends.xla import buffers, clients


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int64, np.uint8, np.float64, np.complex64, ml_dtypes.bfloat16]
)
@pytest.mark.parametrize("shape", [(), (0, 3), (5, 2)])
def test_arrays_round_trip(dtype: type, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    back = buffers.fetch(buffers.Placer(clients.device("cpu"))(array))
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)
    assert back.flags.writeable
    assert not np.shares_memory(back, array)


def test_truth() -> None:
    put = buffers.Placer(clients.device("cpu"))
    assert buffers.truth(put(np.array(True)))
    assert not buffers.truth(put(np.array(False)))
