"""Digests: equal for equal programs, wherever they are; different for everything that counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from aotpipe.export.digest import _tensor_digest
from tests.unit.export.models import exported


def test_strides_and_storage_do_not_count_but_values_shape_and_dtype_do() -> None:
    base = torch.arange(6.0).reshape(2, 3)
    same = [base, base.clone(), base.t().contiguous().t(), torch.arange(12.0).reshape(2, 6)[:, ::2] / 2]
    assert torch.equal(same[3] * 1, torch.tensor([[0.0, 1, 2], [3, 4, 5]]))
    assert len({_tensor_digest(tensor, {}) for tensor in same}) == 1
    others = [base + 1, base.reshape(3, 2), base.double(), base.to(torch.bfloat16), base.view(torch.int32)]
    assert len({_tensor_digest(tensor, {}) for tensor in [base, *others]}) == 6


def test_odd_tensors_have_digests() -> None:
    for tensor in (
        torch.empty(0),
        torch.tensor(3),
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.ones(2) > 0,
    ):
        assert len(_tensor_digest(tensor, {})) == 64


class Branching(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * self.factor, lambda x: x.clone(), (x,))


@pytest.mark.parametrize("make", [lambda: Branching(2.0).eval(), lambda: torch.relu])
def test_two_exports_of_one_model_agree(make: Callable[[], object]) -> None:
    assert exported(make(), torch.ones(3)).digest == exported(make(), torch.ones(3)).digest


def test_what_a_branch_computes_counts() -> None:
    two, three = (exported(Branching(factor).eval(), torch.ones(3)).digest for factor in (2.0, 3.0))
    assert two != three
