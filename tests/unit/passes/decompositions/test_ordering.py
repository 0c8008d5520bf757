"""Sorts and selections as the compiler takes it: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest

from tests.unit.backends.iree.decompositions.agree import check_op

OPS = [
    "aminmax",
    "kthvalue",
    "median",
    "nanmedian",
    "mode",
    "unique_consecutive",
    "searchsorted",
    "bucketize",
]


@pytest.mark.parametrize("dtype", ["float32"])
@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=OPS)
