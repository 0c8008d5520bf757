"""Reading a variable that the path taken has not set raises, in a program as in Python."""
# ruff: noqa: F821, F841

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
import torch

from tests.sweep import slow
from tests.unit.canonicalize.trace.agree import check

Model = Callable[[torch.Tensor, torch.Tensor], object]


def after_a_branch(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    if k > 1:
        y = x + 1
    return y * 2


def on_the_path_that_set_it(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    if k > 1:
        y = x + 1
    if k > 1:
        return y * 2
    return x


def on_the_other_path(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    if k > 1:
        y = x + 1
    z = x
    if k < 4:
        z = y * 2
    return z


def after_a_loop(x: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, int]:
    for row in range(int(k)):
        best = x * row
    return best, row


def after_a_while(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    n = int(k)
    while n > 0:
        y, z = x * n, x
        n -= 1
    return y + z


def in_a_later_iteration(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    total = x
    for step in range(4):
        if step > k:
            total = total + before
        if step + k > 1:
            before = x * step
    return total


def in_a_later_staged_iteration(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    total = x
    for step in range(int(k) + 2):
        if step > 1:
            total = total + before
        if step > k - 3:
            before = x * step
    return total


def where_it_is_reached(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    found = False
    for at in range(3):
        if x[at] > k:
            found, best = True, x[at]
    if found and best > 3:
        x = x + best
    return x if not found else x * best


def in_place(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    if k > 1:
        y = x + 1
    if k < 4:
        y += x
    return y


def in_a_function(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    if k > 1:
        y = x + 1

    def doubled() -> torch.Tensor:
        return y * 2

    return doubled() if k > 0 else x + sum(v for v in [k, x.sum()])


def in_a_list(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    if k > 1:
        y = x + 1
    z = 0
    if k > 0:
        z = sum(row * y for y in x for row in [1, 2])
    return z + (sum([each + y for each in x]) if k > 0 else x)


def left_by_break(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    n = 0
    while True:
        if n >= k:
            found = x * n
            break
        n += 1
    return found


def after_with(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x + k
    with suppress(ValueError):
        z = x
    return y + z


@pytest.mark.parametrize(
    "model",
    [
        after_a_branch,
        slow(on_the_path_that_set_it),
        slow(on_the_other_path),
        slow(after_a_loop),
        after_a_while,
        slow(in_a_later_iteration),
        slow(in_a_later_staged_iteration),
        slow(where_it_is_reached),
        in_place,
        in_a_function,
        slow(in_a_list),
        slow(left_by_break),
        after_with,
    ],
    ids=lambda each: each.__name__,
)
def test_a_variable_that_no_path_has_set(model: Model) -> None:
    x = torch.tensor([1.0, 4.0, 2.5])
    check(model, *((x, torch.tensor(k)) for k in (3, 2, 1, 0, -2, 5)))


def tuples(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    pair = None
    if k > 1:
        pair = (x, x * 2)
    return pair[0] + pair[1]


def tensors(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    bias = x * 3 if k > 1 else None
    if k > 0:
        x = x + bias
    return x


def kept(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    last = None
    for step in range(int(k)):
        last = x * step
    return last.sum() + 1


@pytest.mark.parametrize("model", [tuples, tensors, kept], ids=lambda each: each.__name__)
def test_what_is_none_is_not_computed_with(model: Model) -> None:
    x = torch.tensor([1.0, 4.0, 2.5])
    check(model, *((x, torch.tensor(k)) for k in (3, 2, 1, 0, -2)))


def asserted(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    is_small = x.sum() < 10
    if k > 1:
        assert is_small
        x = x * 2
    return x


def test_a_branch_asserts_a_flag_from_outside() -> None:
    cases = [(torch.full((3,), value), torch.tensor(k)) for value in (1.0, 5.0) for k in (2, 0)]
    check(asserted, *cases)


def in_a_default(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    if k > 1:
        y = x + 1

    def doubled(y: torch.Tensor = y) -> torch.Tensor:
        return y * 2

    return doubled()


def in_a_class(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    if k > 1:
        y = x + 1

    class Kept:
        value = y

    return Kept.value


def by_a_walrus(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    if (n := k + 1) > 2 and (y := x.sum()) > 0:
        x = x + n
    for _ in range(m := int(k)):
        x = x + 1
    return x * y + m


@pytest.mark.parametrize("model", [in_a_default, in_a_class, by_a_walrus], ids=lambda each: each.__name__)
def test_other_places_that_read_and_set(model: Model) -> None:
    x = torch.tensor([1.0, 4.0, 2.5])
    check(model, *((x, torch.tensor(k)) for k in (3, 1, 0, -2)))
