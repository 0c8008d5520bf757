"""Matrix products as the compiler takes it: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest
import torch

from tests.unit.backends.iree.decompositions.agree import check_op, decomposed

OPS = ["addbmm", "addr", "nn_functional_bilinear", "vdot"]


@pytest.mark.parametrize("dtype", ["float32"])
@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=OPS)


def test_half_precision_is_added_up_in_float32() -> None:
    x = torch.randn(2, 8, dtype=torch.float16)
    program = decomposed(torch.nn.Bilinear(8, 8, 3, bias=False).half(), (x, x))
    (node,) = program.graph.find_nodes(op="call_function", target=torch.ops.aten._trilinear.default)
    assert node.meta["val"].dtype is torch.float32
