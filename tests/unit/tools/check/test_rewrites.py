"""What decides: the construct of Python around an expression, and the op in its place."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

import aotpipe
from aotpipe.tools.check import source_ranges
from aotpipe.tools.check.rewrites import deciding

FOUND: list[tuple[str, str] | None] = []
X = torch.linspace(-1.0, 2.0, 12).reshape(3, 4)


def look() -> bool:
    found = deciding(source_ranges.of_frame(sys._getframe(1)))
    FOUND.append((found.what, found.into) if found else None)
    return False


def _if() -> None:
    if look():
        pass


def _while() -> None:
    while look():
        pass


def _and() -> None:
    _ = look() and True


def _or() -> None:
    _ = look() or True


def _not() -> None:
    _ = not look()


def _listed() -> None:
    _ = [number for number in (1,) if look()]


def _chosen() -> None:
    _ = 1 if look() else 2


def _assert() -> None:
    assert not look()


def _nothing() -> None:
    _ = [look()]


def _range() -> None:
    for _ in range(look()):
        pass


@pytest.mark.parametrize(
    ("function", "what", "into"),
    [
        (_if, "if", "torch.cond"),
        (_listed, "comprehension", "torch.cond"),
        (_while, "while", "torch.while_loop"),
        (_and, "and", "torch.logical_and"),
        (_or, "or", "torch.logical_or"),
        (_not, "not", "torch.logical_not"),
        (_chosen, "conditional expression", "torch.cond"),
        (_assert, "not", "torch.logical_not"),
        (_range, "for over range", "torch.while_loop"),
    ],
)
def test_a_construct_is_found(function: Any, what: str, into: str):
    FOUND.clear()
    function()
    [found] = FOUND
    assert found == (what, into)


def test_an_expression_that_decides_nothing():
    FOUND.clear()
    _nothing()
    assert not any(FOUND)


def test_rewrites_are_named_by_line_in_their_order():
    class Net(torch.nn.Module):
        def forward(self, x, n):
            if x.sum() > 0 and x.max() < 5:
                x = x + 1
            for _ in range(n):
                x = x * 2
            while x.abs().max() > 1:
                x = x / 2
            return x if x.mean() > 0 else -x

    checked = aotpipe.check(Net().eval(), (X, torch.tensor(2)))
    assert checked.ok
    assert [(each.what, each.into) for each in checked.rewrites] == [
        ("if", "torch.cond"),
        ("and", "torch.logical_and"),
        ("for over range", "torch.while_loop"),
        ("while", "torch.while_loop"),
        ("conditional expression", "torch.cond"),
    ]
    first = checked.rewrites[0].place.line
    assert [each.place.line - first for each in checked.rewrites] == [0, 0, 2, 4, 6]
