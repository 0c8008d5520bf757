import iree.runtime as iree
import numpy as np
import pytest

from aotpipe.core.dtypes import numpy_dtype
from aotpipe.core.signature import DTYPES
from aotpipe.errors import ProgramCrashed
from aotpipe.runtime.iree import devices


@pytest.fixture(scope="module", params=[True, False], ids=["shared", "own"])
def memory(request):
    """The host's memory, and the same as if it were a GPU's."""
    return devices.Memory(devices.device("local-sync"), is_shared=request.param)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (2, 3)])
@pytest.mark.parametrize("name", sorted(DTYPES))
def test_what_goes_up_comes_down(memory, name, shape):
    dtype = numpy_dtype(name)
    array = np.ones(shape, np.uint8).astype(dtype)
    view = memory.upload(array, devices.element(dtype))
    assert tuple(view.shape) == shape
    again = memory.download("x", view, dtype)
    assert again.dtype == dtype
    assert again.shape == shape
    assert again.tobytes() == array.tobytes()
    assert again.flags.writeable


def test_a_buffer_is_a_copy_both_ways(memory):
    array = np.ones(4, np.float32)
    view = memory.upload(array, devices.element(array.dtype))
    array[:] = 2
    down = memory.download("x", view, array.dtype)
    assert down.tolist() == [1, 1, 1, 1]
    down[:] = 3
    assert memory.download("x", view, array.dtype).tolist() == [1, 1, 1, 1]


def test_every_dtype_of_a_signature_has_an_element_type():
    assert len({devices.element(numpy_dtype(name)) for name in DTYPES}) == len(DTYPES)
    with pytest.raises(KeyError):
        devices.element(np.dtype("datetime64[s]"))


def test_a_result_of_another_width_is_an_error(memory):
    view = memory.upload(np.ones(4, np.float32), int(iree.HalElementType.FLOAT_32))
    with pytest.raises(
        ProgramCrashed, match="16 bytes of shape \\[4\\] for the output 'y', which are not float64"
    ):
        memory.download("y", view, np.dtype("float64"))


def test_truth(memory):
    for value in (True, False):
        assert memory.truth(memory.upload(np.array(value), devices.element(np.dtype(bool)))) is value


def test_a_buffer_is_copied_into_another(memory):
    element = devices.element(np.dtype(np.float32))
    source, target = (memory.upload(np.full((2, 3), value, np.float32), element) for value in (1, 2))
    for _ in range(2):
        memory.copy(source, target)
    assert memory.download("y", target, np.dtype(np.float32)).tolist() == [[1, 1, 1]] * 2
    assert (memory.address(source) != memory.address(target)) == memory.is_shared


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)])
def test_a_copy_has_a_buffer_of_its_own(memory, shape):
    dtype = np.dtype(np.float32)
    source = memory.upload(np.ones(shape, dtype), devices.element(dtype))
    twin = memory.copied(source, dtype)
    if source.byte_length:
        memory.copy(memory.upload(np.zeros(shape, dtype), devices.element(dtype)), source)
    assert memory.download("y", twin, dtype).tolist() == np.ones(shape).tolist()
