"""Expressions as calls of operators, which do the same on plain values."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.canonicalize.operators import operators
from aotpipe.canonicalize.rewrite.ast_builders import OPERATORS
from aotpipe.canonicalize.rewrite.expressions import expression

EXPRESSIONS = (
    "a and b",
    "a or b and not c",
    "a < b <= c",
    "a is None",
    "a in (b, c, 1)",
    "a not in [b]",
    "max(a, b, c) if a else min(b, c)",
    "f'{a:>4}{b!r}{c}'",
    "[v for v in range(abs(a)) if v or b]",
    "isinstance(a, int) and len(str(b))",
    "max([a, b, c], key=lambda v: -v if v > 1 else v)",
    "(lambda v, w=a and b: v and w)(c)",
)


def rewritten(text: str) -> str:
    return ast.unparse(expression(ast.parse(text, mode="eval").body)).replace(f"'{OPERATORS}'", "ops")


@pytest.mark.parametrize("text", EXPRESSIONS)
@given(st.integers(-3, 3), st.integers(-3, 3), st.integers(-3, 3))
def test_the_same_on_plain_values(text: str, a: int, b: int, c: int):
    names = {"a": a, "b": b, "c": c}
    assert eval(rewritten(text), {"ops": operators, **names}) == eval(text, names)


def test_what_assigns_stays_where_it_is():
    assert rewritten("a and (b := 1)") == "a and (b := 1)"


@pytest.mark.parametrize("text", ["lambda: super().f(1)", "lambda: eval('a') + f(1)", "lambda: (yield f(1))"])
def test_a_lambda_that_looks_at_where_it_stands_is_left(text: str):
    assert "ops" not in rewritten(text)
