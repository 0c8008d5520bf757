"""Products of matrices as IREE takes them: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest

from tests.unit.backends.iree.decompositions.agree import check_op

OPS = ["addmm", "baddbmm", "bmm", "mv", "dot", "addmv", "linalg_multi_dot"]


@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str) -> None:
    check_op(op, "float32", among=OPS)
