"""What a path demands of sizes that depend on data holds for that path alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.sweep import slow
from tests.unit.canonicalize.trace.agree import check

VALUES = ([1.0, -1.0, 2.0, 3.0], [-1.0, -1.0, -2.0, 3.0], [2.0, 2.0, 3.0, 3.0], [-1.0] * 4)
CASES = tuple((torch.tensor(v), torch.tensor(sign)) for v in VALUES for sign in (1.0, -1.0))


def second(x, y):
    at = (x > 0).nonzero()[:, 0]
    out = x.sum()
    if len(at) > 1:
        out = out + x[at[1]] * 10
    elif len(at) == 1:
        out = out - x[at[0]]
    if len(at) == 0:
        out = out - 100
    return out


def second_inside(x, y):
    at = (x > 0).nonzero()[:, 0]
    out = x.sum()
    if y > 0:
        if len(at) > 1:
            out = out + x[at[1]] * 10
    else:
        rows = x[x > 1]
        if rows.shape[0] > 2:
            out = out + rows[2]
        if rows.shape[0] == 0:
            out = out - 1000
    return out


def equal_on_one_path(x, y):
    rows = x[x > 0]
    if rows.shape[0] == 4:
        return (rows + x).sum()
    return rows.sum() * 2


def in_a_loop(x, y):
    at = (x > 0).nonzero()[:, 0]
    out, i = x.sum(), 0
    while i < len(at) - 1:
        out = out + x[at[i]] * x[at[1]]
        i = i + 1
    return out


def known_on_one_path(x, y):
    rows = x[x > 0]
    out = x.sum()
    if y > 0:
        torch._check(rows.shape[0] <= 3)
        out = out + (1 if rows.shape[0] > 3 else 2)
    return out + (5 if rows.shape[0] > 3 else 7)


def apart_by_one(x, y):
    rows = x[x > 0]
    if len(rows) < 2:
        return x.sum()
    return (rows[1:] - rows[:-1]).abs().max()


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(apart_by_one, marks=pytest.mark.slow),
        pytest.param(second, marks=pytest.mark.slow),
        slow(second_inside),
        pytest.param(equal_on_one_path, marks=pytest.mark.slow),
        slow(in_a_loop),
        known_on_one_path,
    ],
    ids=lambda model: model.__name__,
)
def test_other_paths_may_have_other_sizes(model: Any) -> None:
    check(model, *CASES)


def third_without_asking(x, y):
    rows = x[x > 0]
    return rows[2] + y if y > 0 else x.sum()


def test_a_demand_that_fails_on_its_path_fails_the_call() -> None:
    check(third_without_asking, *CASES)
