"""Sorts and running extrema as IREE takes them: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest

from tests.unit.backends.iree.decompositions.agree import check_op

OPS = [
    "sort",
    "topk",
    "argsort",
    "msort",
    "cummax",
    "cummin",
]


@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str) -> None:
    check_op(op, "float32", among=OPS)
