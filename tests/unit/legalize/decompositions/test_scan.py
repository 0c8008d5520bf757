"""Running sums and products as the compiler takes it: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest

from tests.unit.legalize.decompositions.agree import check_op


@pytest.mark.parametrize("dtype", ["float32"])
@pytest.mark.parametrize(
    "op",
    [
        "cumsum",
        "cumprod",
        "cummax",
        "cummin",
        "logcumsumexp",
    ],
)
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype)
