"""Copies of views and the like: equal to eager."""

from __future__ import annotations

import pytest

from tests.unit.backends.iree.decompositions.agree import check_op

OPS = ["permute_copy", "unbind_copy", "view_copy", "as_strided_copy", "nonzero_static"]


@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str) -> None:
    check_op(op, "float32", among=OPS)
