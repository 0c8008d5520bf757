"""What rewritten functions give to those that decide on nothing themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.sweep import slow
from tests.unit.canonicalize.trace.agree import check

CASES = tuple((torch.tensor(v),) for v in ([0.5, -1.0, 2.0], [-2.0, -0.5, -0.25], [-9.0, 1.0, 1.0]))


def perhaps(v):
    if v.max() > 1:
        return v + 1
    return None


def asks_for_none(x):
    found = perhaps(x)
    y = x * 0.5
    if found is not None:
        y = found * 2
    return y * 3


def grown(x):
    seen = []
    for _ in range(4):
        x = x + 1
        seen.append(x)
        if x.sum() > 5:
            break
    return seen


def asks_for_a_length(x):
    seen = grown(x)
    return torch.stack(seen), len(seen)


def placed(held):
    held["found"] = None
    if held["x"].sum() > 1:
        held["found"] = held["x"] * 2


def asks_for_what_is_in_its_dict(x):
    held = {"x": x}
    placed(held)
    if held["found"] is None:
        return x
    return held["found"] + 1


@pytest.mark.parametrize(
    "model",
    [asks_for_none, slow(asks_for_a_length), asks_for_what_is_in_its_dict],
    ids=lambda model: model.__name__,
)
def test_the_function_that_gets_it_is_rewritten_too(model: Any):
    check(model, *CASES)
