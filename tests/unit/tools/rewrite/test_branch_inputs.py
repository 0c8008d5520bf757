"""Inputs that go other ways: of the example's dtypes and shapes, within value ranges."""

from __future__ import annotations

import numpy as np

from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.tools.rewrite.branch_inputs import variants

SIGNATURE = Signature(
    inputs=(
        TensorSpec(name="x", dtype="float32", dims=(2, 3), value_range=(-1.0, 1.0)),
        TensorSpec(name="n", dtype="int64", dims=()),
        TensorSpec(name="ids", dtype="int64", dims=(4,)),
        TensorSpec(name="mask", dtype="bool", dims=(3,)),
    ),
    outputs=(),
    state=(),
    symbols=(),
)
EXAMPLE = {
    "x": np.full((2, 3), 0.5, np.float32),
    "n": np.array(3),
    "ids": np.zeros(4, np.int64),
    "mask": np.array([True, False, True]),
}


def test_every_variant_fits_the_signature():
    found = dict(variants(SIGNATURE, EXAMPLE, 0))
    for inputs in found.values():
        for name, array in inputs.items():
            assert (array.dtype, array.shape) == (EXAMPLE[name].dtype, EXAMPLE[name].shape)
        assert np.abs(inputs["x"]).max() <= 1
    assert int(found["n 0"]["n"]) == 0
    assert not found["mask all False"]["mask"].any()
    assert found["ids numbered"]["ids"].tolist() == [0, 1, 0, 1]
    assert (found["x negated"]["x"] == -0.5).all()
    assert found["x negated"]["n"] is EXAMPLE["n"]


def test_they_are_the_same_each_time():
    for (how, one), (again, other) in zip(
        variants(SIGNATURE, EXAMPLE, 1), variants(SIGNATURE, EXAMPLE, 1), strict=True
    ):
        assert how == again
        assert all(np.array_equal(one[name], other[name]) for name in one)
