"""Copies of views and the like: equal to eager."""

from __future__ import annotations

import pytest
import torch

from tests.unit.backends.iree.decompositions.agree import check_op
from tests.unit.passes.legal import check, model

OPS = ["permute_copy", "unbind_copy", "view_copy", "as_strided_copy", "nonzero_static"]


@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str) -> None:
    check_op(op, "float32", among=OPS)


def test_a_buffer_keeps_its_form_when_it_is_written_as_a_whole() -> None:
    def forward(model, x):
        bits = model.wide.view(torch.int32)
        model.wide.copy_(x.sum())
        model.rows.copy_(x.double())
        model.count.copy_(x)
        return bits + 0, model.rows * 2

    made = model(
        forward, wide=torch.ones(2, 3), rows=torch.ones(2, 3), count=torch.ones(3, dtype=torch.int32)
    )
    check(made, (torch.tensor([1.5, 2.5, -3.5]),), (torch.tensor([0.1, 7.0, 9.9]),))
