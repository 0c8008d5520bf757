"""Normalizations as the compiler takes it: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest

from tests.unit.backends.iree.decompositions.agree import check_op

OPS = [
    "nn_functional_layer_norm",
    "nn_functional_group_norm",
    "nn_functional_batch_norm",
    "nn_functional_instance_norm",
    "_batch_norm_with_update",
    "nn_functional_rms_norm",
    "nn_functional_local_response_norm",
]


@pytest.mark.parametrize("dtype", ["float32"])
@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=OPS)


HALF = ["native_layer_norm", "native_batch_norm", "_native_batch_norm_legit"]


@pytest.mark.parametrize("op", HALF)
def test_statistics_of_half_precision_keep_its_dtype(op: str) -> None:
    check_op(op, "float16", among=HALF)
