"""Jumps out of `with`, `try`, `match` and the `else` of loops, on traced and on plain values."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotpipe.canonicalize.rewrite import staging
from tests.unit.canonicalize.trace.agree import check

VECTORS = tuple(
    (torch.tensor(v),) for v in ([0.5, -1.0, 2.0], [-3.0, 1.0, 0.25], [0.0, 0.0, 0.0], [4.0, 4.0, 1.0])
)


def out_of_with(x):
    with torch.no_grad():
        if x.sum() > 0:
            return x * 2
        x = x + 1
    return x  # noqa: RET504  # as people write it


def out_of_try(x):
    log = []
    try:
        if x.sum() > 0:
            return x * 2
        y = x
    except ValueError:
        return -x
    else:
        y = y - 1
    finally:
        log.append(1)
    return y + len(log)


def out_of_a_loop_in_with(x):
    for i in range(3):
        with contextlib.nullcontext():
            if x.sum() > i:
                continue
            if x.max() > 1:
                break
            x = x + i
    else:
        return x * 3
    return x


def out_of_match(x):
    match int(x.sum()):
        case 1 | 2:
            return x
        case 0:
            return x + 1
        case n if n > 5:
            return x * 2
        case _:
            return x * 3


def an_else_that_returns(x):
    n = 0
    while n < 3:
        n += 1
        if x.sum() > n:
            break
    else:
        return x
    return x + n


MODELS = [out_of_with, out_of_try, out_of_a_loop_in_with, out_of_match, an_else_that_returns]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_jumps_on_tensors(model: Any):
    check(model, *VECTORS)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_jumps_on_plain_values(model: Callable[..., Any]):
    code = staging.rewritten(model)
    assert code is not None
    for (x,) in VECTORS:
        want = model(x)
        with staging.swapped({model: code}):
            assert torch.equal(model(x), want)


def else_that_returns(items, wanted, last):
    total = 0
    for item in items:
        if item == wanted:
            return "found", total
        if item == last:
            break
        total += item
    else:
        if total > 3:
            return "else", total
        total += 1000
    return "end", total


def else_inside_of_a_loop(items, wanted, last):
    item = 0
    while True:
        for item in items:  # the last one is read
            if item == wanted:
                return "found", item
            if item == last:
                break
        else:
            return "else", item
        wanted, last = last, None
        if item == 3:
            break
    return "end", item


@pytest.mark.parametrize("function", [else_that_returns, else_inside_of_a_loop])
def test_an_else_of_a_loop_that_returns_and_breaks(function: Any) -> None:
    code = staging.rewritten(function)
    assert code is not None
    written = type(function)(code, function.__globals__)
    for count in range(4):
        for items in itertools.product((1, 2, 3), repeat=count):
            for wanted, last in itertools.product((1, 2, 5), (1, 3, 7)):
                assert written(items, wanted, last) == function(items, wanted, last)
