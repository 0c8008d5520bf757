"""Comprehensions over lists that grow, and with tests that a tensor decides, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotpipe.canonicalize.operators import comprehensions
from tests.unit.canonicalize.trace.agree import check

CASES = tuple((torch.tensor(v),) for v in ([1.0, 2.0], [-3.0, 1.0], [0.5, 4.0], [9.0, 9.0], [-1.0, -1.0]))


def grown(x):
    seen = []
    for number in range(4):
        if x.sum() > 6:
            break
        x = x + 1
        seen.append((x, number))
    return seen


def over_a_list_that_grows(x):
    seen = grown(x)
    doubled = [row * 2 + number for row, number in seen]
    return torch.stack([x, *[x]]), len(doubled), sum(doubled, x), sum(number for _, number in seen)


def filtered_by_numbers(x):
    seen = grown(x)
    large = [row for row, number in seen if row.sum() > 3 and number < 3]
    return len(large), sum(large, x * 0)


def filtered_by_a_tensor(x):
    found = [row * 2 for row in (x, x + 1, x * x) if row.sum() > 2 if row.max() < 20]
    return len(found), sum(found, x)


def asked_of_all(x):
    rows = [row for row, _ in grown(x)]
    return any(row.max() > 5 for row in rows), all(row.min() > 0 for row in rows)


@pytest.mark.parametrize(
    "model",
    [over_a_list_that_grows, filtered_by_numbers, filtered_by_a_tensor, asked_of_all],
    ids=lambda model: model.__name__,
)
def test_comprehensions_as_in_eager(model: Any) -> None:
    check(model, *CASES)


def test_of_plain_items_it_is_as_it_was() -> None:
    def apart(items):
        return [(lambda n=n: n % 2, lambda n=n: n * n) for n in items]

    found = comprehensions.of(range(5), lambda items: [n * n for n in items if n % 2], apart, tested=True)
    assert found == [1, 9]
    assert comprehensions.of(range(3), list, apart, tested=False) == [0, 1, 2]
