"""The chunked loss of a linear layer beside eager's: weights, ignored rows, no rows, each reduction."""

from __future__ import annotations

import pytest
import torch

from tests.unit.passes.legal import Runner, check, model, targets

OPTIONS = getattr(torch.nn, "LinearCrossEntropyOptions", None)


@pytest.mark.skipif(OPTIONS is None, reason="torch has no such loss")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_equals_eager(reduction):
    weight = torch.tensor([0.5, 2.0, 1.0, 3.0])

    def forward(model, x, target):
        return torch.nn.functional.linear_cross_entropy(
            x,
            model.linear.weight,
            target,
            linear_bias=model.linear.bias,
            weight=weight,
            reduction=reduction,
            ignore_index=3,
            options=OPTIONS(batch_chunk_size=2),
        )

    made = model(forward).requires_grad_(False)
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    target = torch.tensor([0, 3, 2, 1, 2])
    found = check(made, (x, target), (x * 3, target.flip(0)))
    nothing = Runner(found)((x, torch.full_like(target, 3)))["output"]
    wanted = made(x, torch.full_like(target, 3))
    torch.testing.assert_close(nothing, wanted, equal_nan=True)
    assert not {name for name in targets(found) if "chunked" in name}
