"""Counters of `for` loops."""

from __future__ import annotations

import ast

import pytest

from aotpipe.tools.rewrite.expression_rewrites import Unstaged
from aotpipe.tools.rewrite.range_loops import Counter, counter


def made(text: str) -> Counter:
    [node] = ast.parse(text).body
    assert isinstance(node, ast.For)
    return counter(node)


def test_a_range_counts_under_the_loops_own_name():
    found = made("for i in range(n):\n    x = i")
    assert (found.index, ast.unparse(found.test), ast.unparse(found.begin), found.step) == (
        "i",
        "i < n",
        "0",
        1,
    )
    found = made("for i in range(a, b, -2):\n    x = i")
    assert (ast.unparse(found.test), ast.unparse(found.begin), found.step) == ("i > b", "a", -2)


def test_another_name_where_that_is_not_free():
    assert made("for _ in range(3):\n    x = 1").index == "index"
    assert made("for i in range(3):\n    i = i + 1").index == "index"


def test_an_end_that_is_computed_is_computed_once():
    found = made("for i in range(len(x)):\n    y = i")
    assert [ast.unparse(ast.fix_missing_locations(each)) for each in found.before] == ["count = len(x)"]
    assert ast.unparse(found.test) == "i < count"


@pytest.mark.parametrize("items", ["x", "range(f(x), 3)", "range(0, 3, s)"])
def test_what_is_no_counter(items: str):
    with pytest.raises(Unstaged):
        made(f"for i in {items}:\n    y = i")
