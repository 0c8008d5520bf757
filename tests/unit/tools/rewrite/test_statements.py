"""Small things about statements."""

from __future__ import annotations

import ast

import pytest

from aotpipe.tools.rewrite import statements
from aotpipe.tools.rewrite.expression_rewrites import Unsupported
from aotpipe.tools.rewrite.statements import Counter, counter


def body(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def test_branches_that_only_set_variables():
    found = statements.simple(body("a = b\nc = True"))
    assert found is not None
    assert list(found) == ["a", "c"]
    assert statements.simple(body("a = b + 1")) is None
    assert statements.simple(body("a = b\nb = c")) is None
    assert statements.simple(body("pass")) == {}


def test_one_of_two_values():
    test, a, b = expression("t"), expression("a"), expression("b")
    true, false = expression("True"), expression("False")
    shown = [statements.select(test, yes, b) for yes in (a, true, false)]
    assert [ast.unparse(each) for each in shown] == ["torch.where(t, a, b)", "b | t", "b & ~t"]


def test_texts_of_exceptions():
    [raised] = body("raise ValueError(f'at {x} of 3')")
    assert isinstance(raised, ast.Raise)
    assert statements.raised_text(raised) == "ValueError: at ... of 3"
    assert statements.raises(body("print(1)\nraise ValueError"))
    assert not statements.raises(body("x = 1\nraise ValueError"))


def test_what_does_nothing_and_what_is_handed_on():
    assert [statements.is_nothing(each) for each in body("pass\na = a\na = b")] == [True, True, False]
    assert statements.is_handed_on("a", body("b = 1"))
    assert statements.is_handed_on("a", body("a = b"))
    assert not statements.is_handed_on("a", body("a = b + 1"))
    assert statements.item_written(body("a[1] = 2\nb = a[2]")) == ["a"]


def test_flags_are_named_as_people_would():
    [function] = body("def f(stop):\n    __aotpipe_stop_1 = __aotpipe_result\n    return __aotpipe_stop_1")
    assert isinstance(function, ast.FunctionDef)
    made = ast.unparse(statements.renamed(function))
    assert "stop_2 = result" in made
    assert ast.unparse(statements.truth(expression("not a"))) == "~a"


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
    with pytest.raises(Unsupported):
        made(f"for i in {items}:\n    y = i")
