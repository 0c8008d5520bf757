"""Arrays go to the device and come back, every dtype bit for bit."""

import jax  # noqa: F401  # gives jaxlib's arrays the properties that are read here
import ml_dtypes
import numpy as np
import pytest

from aotpipe.runtime.xla import buffers, clients
from aotpipe.runtime.xla.mesh import Mesh, Sharding


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int64, np.uint8, np.float64, np.complex64, ml_dtypes.bfloat16]
)
@pytest.mark.parametrize("shape", [(), (0, 3), (5, 2)])
def test_arrays_round_trip(dtype: type, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    memory = buffers.Memory(clients.devices("cpu", 1))
    back = memory.download(memory.upload(array))
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)
    assert back.flags.writeable
    assert not np.shares_memory(back, array)


def test_a_copy_does_not_see_what_is_written_later() -> None:
    """As arrays are that a program checks; of others a device that can reads the memory of the host."""
    room = np.zeros(64, np.int64)
    array = room[-room.ctypes.data % 64 // 8 :][:32]
    memory = buffers.Memory(clients.devices("cpu", 1))
    uploaded = [memory.upload(array, copied=copied) for copied in (True, False)]
    array[:] = 7
    found = [memory.download(each).max() for each in uploaded]
    assert found == [0, 7]


def test_truth() -> None:
    memory = buffers.Memory(clients.devices("cpu", 1))
    for value in (True, False):
        assert memory.truth(memory.upload(np.array(value))) is value


def test_arrays_are_spread_over_devices_and_joined_again() -> None:
    devices = clients.devices("cpu", 4)
    memory = buffers.memory(devices)
    mesh = Mesh.parse("2x2")
    for array, splits in (
        (np.arange(24, dtype=np.float32).reshape(4, 6), (("y",), ("x",))),
        (np.arange(8), (("x", "y"),)),
        (np.array(3), ()),
        (np.array([True, False]), ()),
    ):
        sharding = Sharding.of(mesh, splits, array.ndim)
        placed = memory.upload(array, sharding)
        assert placed.aval.shape == array.shape
        parts = [each.data for each in sorted(placed.addressable_shards, key=lambda each: each.device.id)]
        result = buffers.ShardedArray(parts, sharding, array.shape)
        np.testing.assert_array_equal(memory.download(result), array)
        assert memory.as_argument(result, sharding).aval.shape == array.shape


def test_the_last_part_of_a_dim_may_be_filled_up() -> None:
    devices = clients.devices("cpu", 1)
    memory, of_one = buffers.MeshMemory(devices), buffers.Memory(devices)
    sharding = Sharding((2,), ((0,), (1,)))
    parts = [of_one.upload(np.array([1.0, 2.0])), of_one.upload(np.array([3.0, 99.0]))]
    assert memory.download(buffers.ShardedArray(parts, sharding, (3,))).tolist() == [1, 2, 3]
