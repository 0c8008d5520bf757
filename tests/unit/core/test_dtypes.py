import subprocess
import sys

import numpy as np
import pytest

from aotpipe.core import dtypes
from aotpipe.core.signature import DTYPES


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_names_round_trip(name):
    dtype = dtypes.numpy_dtype(name)
    assert dtypes.name_of(dtype) == name
    assert dtype.isnative


def test_unknown_names():
    with pytest.raises(KeyError):
        dtypes.numpy_dtype("float8_e8m0")
    assert dtypes.name_of(np.dtype("datetime64[s]")) is None
    assert dtypes.name_of(np.dtype(">f4")) is None


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_raw_bytes_is_a_view(shape):
    array = np.ones(shape, np.float32)
    raw = dtypes.raw_bytes(array)
    assert raw.shape == (array.nbytes,)
    assert raw.tobytes() == array.tobytes()
    if array.size:
        assert np.shares_memory(raw, array)


def test_a_host_that_needs_no_bfloat16_does_not_import_it():
    code = (
        "import sys; from aotpipe.core import dtypes; dtypes.numpy_dtype('float32'); "
        "assert 'ml_dtypes' not in sys.modules; dtypes.numpy_dtype('bfloat16'); assert 'ml_dtypes' in "
        "sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_caller_s_own_bfloat16():
    code = (
        "import ml_dtypes, numpy; from aotpipe.core import dtypes; "
        "assert dtypes.name_of(numpy.dtype(ml_dtypes.bfloat16)) == 'bfloat16'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
