"""Generator expressions whose tests a tensor decides: what Python's functions and loops take of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotpipe.errors import ExportFailed
from tests.sweep import sweep
from tests.unit.canonicalize.trace.agree import check

VECTORS = tuple(
    (torch.tensor(v),) for v in ([0.0, 1.0, 2.0, 3.0], [2.0, 1.0, 0.0, 5.0], [-9.0, -1.0, -2.0, 1.0])
)


def the_sum(x):
    return sum(v.item() for v in x if v > 0)


def the_first(x):
    return next((i for i, v in enumerate(x) if v > 2), -1)


def the_first_that_must_be_there(x):
    try:
        return next(v for v in x if v > 2)
    except StopIteration:
        return x[0] * 0 - 1


def a_list_and_the_largest(x):
    return len(list(v for v in x if v > 1)), max(float(v) for v in x if v >= 0)  # noqa: C400


def a_loop(x):
    total, met = x[0] * 0, 0
    for v in (w * 2 for w in x if w > 0):
        total = total + v
        met += 1
        if met > 1:
            break
    return total, met


MODELS = {
    each.__name__: each
    for each in (the_sum, the_first, the_first_that_must_be_there, a_list_and_the_largest, a_loop)
}


@pytest.mark.parametrize("name", sweep(list(MODELS), quick=1, always=["the_sum", "the_first", "a_loop"]))
def test_elements_that_a_tensor_decides_on_are_those_of_eager(name: str) -> None:
    check(MODELS[name], *VECTORS)


def test_the_first_of_many_elements_takes_branches_one_after_another() -> None:
    x = torch.arange(40.0) / 20
    check(the_first, (x,), (x + 0.1,), (x - 9,), (x + 9,))


def goes_on(x: torch.Tensor) -> Any:
    elements = (v for v in x if v > 0)
    return next(elements, x[0]) + next(elements, x[0])


def test_what_comes_after_the_first_element_is_refused() -> None:
    with pytest.raises(ExportFailed, match="after a tensor decided which element was its first"):
        check(goes_on, *VECTORS)
