import iree.runtime as iree
import numpy as np
import pytest

from aotpipe.backends.iree import buffers, devices
from aotpipe.dtypes import numpy_dtype
from aotpipe.errors import ProgramCrashed
from aotpipe.signature import DTYPES


@pytest.fixture(scope="module")
def upload():
    return buffers.uploader(devices.device("local-sync"))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (2, 3)])
@pytest.mark.parametrize("name", sorted(DTYPES))
def test_what_goes_up_comes_down(upload, name, shape):
    dtype = numpy_dtype(name)
    array = np.ones(shape, np.uint8).astype(dtype)
    view = upload(array, buffers.element(dtype))
    assert tuple(view.shape) == shape
    again = buffers.download("x", view, dtype)
    assert again.dtype == dtype
    assert again.shape == shape
    assert again.tobytes() == array.tobytes()
    assert again.flags.writeable


def test_a_buffer_is_a_copy_both_ways(upload):
    array = np.ones(4, np.float32)
    view = upload(array, buffers.element(array.dtype))
    array[:] = 2
    down = buffers.download("x", view, array.dtype)
    assert down.tolist() == [1, 1, 1, 1]
    down[:] = 3
    assert buffers.download("x", view, array.dtype).tolist() == [1, 1, 1, 1]


def test_every_dtype_of_a_signature_has_an_element_type():
    assert len({buffers.element(numpy_dtype(name)) for name in DTYPES}) == len(DTYPES)
    with pytest.raises(KeyError):
        buffers.element(np.dtype("datetime64[s]"))


def test_a_result_of_another_width_is_an_error(upload):
    view = upload(np.ones(4, np.float32), int(iree.HalElementType.FLOAT_32))
    with pytest.raises(
        ProgramCrashed, match="16 bytes of shape \\[4\\] for the output 'y', which are not float64"
    ):
        buffers.download("y", view, np.dtype("float64"))


def test_truth(upload):
    for value in (True, False):
        assert buffers.truth(upload(np.array(value), buffers.element(np.dtype(bool)))) is value


def test_a_buffer_is_copied_into_another():
    device = iree.get_device("local-sync")
    upload, copy = buffers.uploader(device), buffers.Copier(device)
    element = buffers.element(np.dtype(np.float32))
    source, target = (upload(np.full((2, 3), value, np.float32), element) for value in (1, 2))
    for _ in range(2):
        copy(source, target)
    assert buffers.download("y", target, np.dtype(np.float32)).tolist() == [[1, 1, 1]] * 2
    assert buffers.address(source) != buffers.address(target)
