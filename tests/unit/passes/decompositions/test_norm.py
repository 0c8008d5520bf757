"""Normalizations as the compiler takes it: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest
import torch

from aotpipe.passes.decompositions import norm
from tests.unit.backends.iree.decompositions.agree import check_op
from tests.unit.passes.legal import check, model, targets

OPS = [
    "nn_functional_layer_norm",
    "nn_functional_group_norm",
    "nn_functional_batch_norm",
    "nn_functional_instance_norm",
    "_batch_norm_with_update",
    "nn_functional_rms_norm",
    "nn_functional_local_response_norm",
]


@pytest.mark.parametrize("dtype", ["float32"])
@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=OPS)


HALF = ["native_layer_norm", "native_batch_norm", "_native_batch_norm_legit"]


@pytest.mark.parametrize("op", HALF)
def test_statistics_of_half_precision_keep_its_dtype(op: str) -> None:
    check_op(op, "float16", among=HALF)


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
def test_an_embedding_writes_the_rows_of_largest_norm(norm_type):
    def forward(model, indices):
        return torch.nn.functional.embedding(indices, model.rows, max_norm=1.0, norm_type=norm_type)

    rows = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    made = model(forward, rows=rows)
    calls = [(torch.tensor([[1, 1], [5, 2]]),), (torch.tensor([[0, 1], [3, 0]]),)]
    found = check(made, *calls)
    assert not {name for name in targets(found) if "renorm" in name}
    for outside in (-1, 6):
        with pytest.raises(RuntimeError, match="index out of range"):
            norm.embedding_renorm(rows, torch.tensor([0, outside]), 1.0, norm_type)
