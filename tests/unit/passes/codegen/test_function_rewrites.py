"""Staged functions: torch.export takes them, and they compute what the user's do on every path."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.example_call import uncompiled
from aotpipe.passes.codegen.expression_rewrites import Unsupported
from tests.sweep import sweep
from tests.unit.passes.codegen.graph import Calling
from tests.unit.passes.codegen.staged import written

X = torch.tensor([1.0, -2.0, 3.0])


def returning(x):
    if x.sum() > 0:
        return torch.relu(x)
    else:  # noqa: RET505
        return torch.sigmoid(x)


def looping(x):
    total, steps = 0.0, 0
    while total < 4 and steps < 6:
        p = x.abs().max() * 0.5
        if p > 1.2:
            p = 0.7 - total * 0.1
        total += p
        steps += 1
    return total, steps


def breaking(x, limit):
    hit = False
    seen = torch.zeros(3)
    for i in range(3):
        seen[i] = x[i] * 2
        if x[i] > limit:
            hit = True
            break
    return seen, hit


def leaving(x, limit):
    n = 0
    while n < 8:
        new = x * 0.5
        if new.abs().sum() < limit:
            return new, n
        x = new
        n += 1
    return x, n


def collecting(x):
    y = x
    if x.sum() > 0:
        log = []
        log.append(x * 2)
        y = log[0]
    return y


def writing(x, limit):
    kept = torch.zeros(3)
    if x.sum() > limit:
        kept[1] = 5.0
        x = x + kept
    assert x.sum() < 100, "too large"
    if x.max() > 90:
        raise ValueError(f"larger than {limit}")
    return x, kept


def halving(x):
    n, steps = int(x.sum()), 0
    while n:
        n //= 2
        steps += 1
    for _ in range(2):
        if steps > 1:
            unread = x + 1  # noqa: F841
    return n, steps


CASES = [
    (halving, [(X * 4,), (X * 0,)]),
    (collecting, [(X,), (-X,)]),
    (returning, [(X,), (-X,)]),
    (looping, [(X,), (X * 0.1,), (X * 9,), (X * 0,)]),
    (breaking, [(X, torch.tensor(2.0)), (X, torch.tensor(9.0)), (X, torch.tensor(0.5))]),
    (leaving, [(X, torch.tensor(0.5)), (X, torch.tensor(99.0)), (X, torch.tensor(0.0))]),
    (writing, [(X, torch.tensor(0.0)), (X, torch.tensor(9.0))]),
]


@cache
def staged(function: Any) -> tuple[str, Any]:
    """The function of a case, staged for its first call."""
    [first] = [calls[0] for each, calls in CASES if each is function]
    found: tuple[str, Any] = written(function, *first)
    return found


# The paths of the others are those of `leaving`, `collecting` and `writing`.
@pytest.mark.parametrize(
    ("function", "calls"),
    sweep(CASES, quick=0, always=[CASES[0], CASES[1], CASES[3], CASES[5], CASES[6]]),
    ids=[case[0].__name__ for case in CASES],
)
def test_a_staged_function_computes_the_same(function: Any, calls: Any):
    text, made = staged(function)
    with torch.no_grad():
        program = torch.export.export(Calling(made), calls[0]).module()
        for call in calls:
            want = [torch.as_tensor(each) for each in pytree.tree_leaves(function(*call))]
            with uncompiled():
                for got in (made(*call), program(*call)):
                    mine = [torch.as_tensor(each) for each in pytree.tree_leaves(got)]
                    torch.testing.assert_close(mine, want, check_dtype=False, msg=text)


def test_names_and_lines_stay_the_users():
    text, _ = staged(returning)
    assert "def returning(x):" in text
    assert "result = torch.relu(x)" in text
    assert "result = torch.cond(x.sum() > 0, true_fn, false_fn, (x,))" in text
    text, _ = staged(looping)
    assert "    total, steps = (0.0, 0)\n" in text
    assert "return (total < 4) & (steps < 6)" in text
    assert "torch.while_loop(" in text
    assert "aotpipe" not in text


def test_a_branch_that_only_sets_a_flag_is_a_logical_op():
    text, _ = staged(breaking)
    assert "hit = hit | decided" in text
    assert "seen[i[None]] = x[i[None]].squeeze(0) * 2" in text
    assert "seen = seen.clone()" in text


def test_what_raises_is_an_assert():
    text, made = staged(writing)
    assert "torch._assert_async(x.sum() < 100, 'too large')" in text
    assert "torch._assert_async(~(x.max() > 90), 'ValueError: larger than ...')" in text
    with pytest.raises(RuntimeError, match="too large"), uncompiled():
        made(X * 1000, torch.tensor(0.0))


def maybe(x, n):
    best = None
    for t in range(n):
        best = x[t] if best is None else torch.maximum(best, x[t])
    if best is None:
        return x[0]
    return best


def test_what_has_no_form_is_told():
    with pytest.raises(Unsupported, match="None"):
        written(maybe, X, torch.tensor(2))
