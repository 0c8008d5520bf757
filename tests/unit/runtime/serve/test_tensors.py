"""Tensors of the protocol: what arrives is what was sent, or is refused."""

from __future__ import annotations

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from aotpipe.core.dtypes import numpy_dtype
from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.errors import AotpipeError, InputDtype, InputShape, InputValue, NotInJson
from aotpipe.runtime.serve import tensors
from aotpipe.runtime.serve.tensors import DATATYPES, Tensor


@st.composite
def an_array(draw: st.DrawFn) -> tuple[TensorSpec, np.ndarray]:
    name = draw(st.sampled_from(sorted(DATATYPES)))
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    count = int(np.prod(shape, dtype=int))
    raw = draw(st.binary(min_size=count * 8, max_size=count * 8))
    dtype = numpy_dtype(name)
    array = np.frombuffer(raw, np.uint8)[: count * dtype.itemsize]
    array = (array & 1).astype(bool) if name == "bool" else array.view(dtype)
    return TensorSpec("x", name, tuple(range(len(shape)))), array.reshape(shape)


@given(an_array())
def test_bytes_come_back(case: tuple[TensorSpec, np.ndarray]) -> None:
    spec, array = case
    found = tensors.from_bytes(spec, array.shape, memoryview(array.tobytes()))
    assert found.array().tobytes() == array.tobytes()
    assert found.array().shape == array.shape


@given(an_array())
def test_numbers_come_back_or_are_refused(case: tuple[TensorSpec, np.ndarray]) -> None:
    spec, array = case
    tensor = Tensor("x", spec.dtype, array.shape, array.tobytes())
    try:
        text = orjson.dumps({"data": tensors.to_json(tensor)})
    except NotInJson:
        assert not np.isfinite(array.astype(np.float64)).all()
        return
    found = tensors.from_json(spec, array.shape, orjson.loads(text)["data"]).array()
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("dtype", "shape", "data", "error"),
    [
        ("int32", (1,), [1.5], InputDtype),
        ("int32", (1,), [1 << 40], InputDtype),
        ("int64", (1,), [1 << 80], InputDtype),
        ("uint8", (1,), [-1], InputDtype),
        ("bool", (1,), [1], InputDtype),
        ("float32", (1,), [1e300], InputDtype),
        ("float32", (1,), ["1"], InputDtype),
        ("float32", (2, 2), [[1, 2, 3, 4]], InputShape),
        ("float32", (1 << 60, 1 << 60), [1], InputShape),
        ("float32", (2,), {"0": 1}, InputShape),
    ],
)
def test_what_a_dtype_cannot_hold_is_refused(
    dtype: str, shape: tuple[int, ...], data: object, error: type[AotpipeError]
) -> None:
    with pytest.raises(error):
        tensors.from_json(TensorSpec("x", dtype, shape), shape, data)


def test_a_bool_is_0_or_1() -> None:
    with pytest.raises(InputValue):
        tensors.from_bytes(TensorSpec("x", "bool", (2,)), (2,), memoryview(b"\x00\x02"))


@pytest.mark.parametrize(
    ("inputs", "outputs", "symbol"),
    [
        (("x: float32[b, 4]",), ("y: float32[b]",), "b"),
        (("x: float32[b, 4]", "z: int64[b]"), ("y: float32[b, 2]",), "b"),
        (("x: float32[b, b]",), ("y: float32[b]",), ""),
        (("x: float32[b, 4]",), ("y: float32[]",), ""),
        (("x: float32[b, 4]",), ("y: float32[4, b]",), ""),
        (("x: float32[b, 4]",), ("y: float32[2*b]",), ""),
        (("x: float32[4, 4]",), ("y: float32[4]",), ""),
        (("x: float32[b, 4]", "z: int64[]"), ("y: float32[b]",), ""),
    ],
)
def test_a_batch_is_the_first_size_of_all(
    inputs: tuple[str, ...], outputs: tuple[str, ...], symbol: str
) -> None:
    read = lambda texts: tuple(map(TensorSpec.parse, texts))  # noqa: E731
    assert tensors.batch_symbol(Signature(inputs=read(inputs), outputs=read(outputs))) == symbol
