"""Scatters that reduce, and writes by masks: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest

from tests.unit.backends.iree.decompositions.agree import check_op

OPS = [
    "masked_scatter",
    "scatter_reduce_amax",
    "index_reduce_mean",
    "put",
    "repeat_interleave",
    "histc",
    "nn_functional_embedding_bag",
]


@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str) -> None:
    check_op(op, "float32", among=OPS)
