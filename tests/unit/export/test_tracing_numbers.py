"""Numbers that a tensor holds are compared in the run: they may be NaN or infinite."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.unit.canonicalize.trace.agree import check

CASES = [
    torch.tensor(each)
    for each in (
        *([1.0, 2.0], [math.nan, 1.0], [1.0, math.nan], [math.inf, 1.0], [-math.inf, math.inf], [0.0, 0.0]),
        *([3.0, 3.0], [-2.5, 0.5], [0.0, -1.0]),
    )
]


def is_itself(x: torch.Tensor) -> Any:
    v = x[0].item()
    if v == v:
        return x + 1
    return x * 0 + 5


def is_another(x: torch.Tensor) -> Any:
    v = x.sum().item()
    return x * 2 if v != v else x * 3


def is_filtered(x: torch.Tensor) -> Any:
    return torch.tensor(sum(v for v in x.tolist() if v == v) + 0.5)


def is_nothing(x: torch.Tensor) -> Any:
    v = x[0].item()
    zero, square = v * 0, v * v
    return (
        torch.tensor(1.0 if zero == 0 else 2.0),
        torch.tensor(1.0 if v - v == 0 else 2.0),
        torch.tensor(1.0 if square >= 0 else 2.0),
        x + zero,
    )


def is_close(x: torch.Tensor) -> Any:
    a, b = x.tolist()
    return (
        torch.tensor(1.0 if math.isclose(a, b, abs_tol=0.5) else 0.0),
        torch.tensor(1.0 if math.isclose(a, b, rel_tol=0.5) else 0.0),
        torch.tensor(1.0 if math.isclose(a, 1.0) else 0.0),
    )


def has_a_remainder(x: torch.Tensor) -> Any:
    try:
        return torch.tensor(math.fmod(x[0].item(), x[1].item()))
    except ValueError:
        return torch.tensor(-3.0)


@pytest.mark.parametrize("model", [is_itself, is_another, is_filtered, is_nothing, is_close, has_a_remainder])
def test_numbers_that_are_none(model: Any) -> None:
    check(model, *((each,) for each in CASES))


def test_numbers_of_sizes_are_compared_in_the_trace() -> None:
    def model(x: torch.Tensor) -> Any:
        half = x.shape[0] / 2
        return x * half if half == half and half * 0 == 0 else x

    check(model, (torch.ones(4),))
