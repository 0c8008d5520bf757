"""Shifts whose counts may not fit; `test_integer_division.py` runs all of them on each target."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.unit.passes.legal import check, legal, model, targets

COUNTS = torch.tensor([0, 1, 31, 32, 70, -1])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_all_bits_go_out(dtype: torch.dtype) -> None:
    module = model(lambda self, x, count: (x << count, x >> count, 7 >> count, x >> 70))
    x = torch.tensor([7, -7, 9, 1, -1, 3]).to(dtype)
    check(module, (x, COUNTS.to(dtype)))


@pytest.mark.parametrize("forward", [lambda self, x, count: x << 3, lambda self, x, count: x >> (count & 7)])
def test_counts_that_fit_cost_nothing(forward: Any) -> None:
    assert "aten.where.self" not in targets(legal(model(forward), (COUNTS, COUNTS)))
