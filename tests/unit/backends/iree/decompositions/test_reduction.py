"""Reductions as the compiler takes it: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest

from tests.unit.backends.iree.decompositions.agree import check_op

OPS = [
    "sum",
    "mean",
    "amax",
    "amin",
    "max_reduction_with_dim",
    "min_reduction_no_dim",
    "argmax",
    "argmin",
    "any",
    "all",
    "prod",
    "var",
    "std",
    "var_mean",
    "softmax",
    "log_softmax",
    "logsumexp",
]


@pytest.mark.parametrize("dtype", ["float32"])
@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=OPS)
