"""Dtypes, promotion and broadcasting as torch has them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from aotpipe.backends.xla.lowering import own_settings
from aotpipe.backends.xla.values import axes_of, cast, constant, dtype_of, result_dtype, wide
from aotpipe.model.torch_arrays import view_numpy

DTYPES = (torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float64)
OPERANDS = [
    True,
    3,
    2.5,
    *(
        torch.zeros(shape, dtype=dtype)
        for shape in ((), (2,))
        for dtype in (
            torch.bool,
            torch.uint8,
            torch.int32,
            torch.int64,
            torch.float16,
            torch.bfloat16,
            torch.float64,
        )
    ),
]


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float8_e5m2, torch.complex64]
)
def test_dtypes_round_trip(dtype: torch.dtype) -> None:
    assert getattr(torch, dtype_of(dtype).name) == dtype


def test_promotion_is_that_of_torch() -> None:
    pairs = [pair for pair in itertools.product(OPERANDS, OPERANDS) if any(map(torch.is_tensor, pair))]
    for left, right in pairs:
        arrays = [view_numpy(one) if torch.is_tensor(one) else one for one in (left, right)]
        assert result_dtype(*arrays) == dtype_of(torch.result_type(left, right)), (left, right)


def test_casts_are_those_of_torch() -> None:
    values = torch.tensor([-1.5, 0.0, -0.0, 2.7, 200.0])
    with own_settings():
        for dtype in (torch.bool, torch.int8, torch.uint8, torch.int64, torch.float16):
            got = jax.device_get(cast(jnp.asarray(view_numpy(values)), dtype_of(dtype)))
            np.testing.assert_array_equal(got, view_numpy(values.to(dtype)))
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):  # neither holds the ends of the integers
            small = values[:4].to(dtype)
            got = jax.device_get(cast(jnp.asarray(view_numpy(small)), dtype_of(torch.int64)))
            np.testing.assert_array_equal(got, view_numpy(small.to(torch.int64)))


def test_constants_and_shapes() -> None:
    with own_settings():
        assert jax.device_get(constant(-1, np.dtype(np.uint8))) == 255
        assert constant(2**63 - 1, np.dtype(np.int64), (2,)).tolist() == [2**63 - 1] * 2
    assert axes_of([-1, 0], 3) == (0, 2)
    assert axes_of(None, 2) == axes_of([], 2) == (0, 1)
    assert axes_of(0, 0) == ()
    assert wide(dtype_of(torch.bfloat16)) == np.float32
