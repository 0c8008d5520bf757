"""Ranges of inputs that index an embedding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.export.models import exported

IDS = torch.zeros(2, 3, dtype=torch.long)
TEN, FIVE = nn.Embedding(10, 4).eval(), nn.Embedding(5, 4).eval()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda ids: TEN(ids), (0, 9)),
        (lambda ids: TEN(ids) + FIVE(ids), (0, 4)),
        (lambda ids: TEN(ids.view(-1)).sum(), (0, 9)),
        (lambda ids: TEN(ids.unsqueeze(0).expand(2, 2, 3)), (0, 9)),
        (lambda ids: TEN(ids + 1), None),
        (lambda ids: TEN(ids.clamp(0, 9)), None),
        (lambda ids: TEN(ids[:, :1]), None),
        (lambda ids: ids + 1, None),
    ],
)
def test_only_direct_use_of_all_values_bounds_an_input(function: Any, expected: Any) -> None:
    [leaf] = exported(function, IDS).entries[0].signature.tensor_inputs
    assert leaf.value_range == expected


def test_a_declared_range_wins() -> None:
    found = exported(lambda ids: TEN(ids), IDS, ranges={"ids": (0, 3)})
    assert found.entries[0].signature.tensor_inputs[0].value_range == (0, 3)
