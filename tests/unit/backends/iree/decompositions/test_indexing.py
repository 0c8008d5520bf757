"""Reads and writes at index tensors as IREE takes them: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest

from tests.unit.backends.iree.decompositions.agree import check_op

OPS = [
    "gather",
    "scatter",
    "scatter_add",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_select",
    "take",
    "take_along_dim",
    "masked_fill",
    "nn_functional_embedding",
]


@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str) -> None:
    check_op(op, "float32", among=OPS)
