"""The variables of statements."""

from __future__ import annotations

import ast

from aotpipe.canonicalize.rewrite.scopes import assigned, mentions, reference, starts


def test_what_statements_assign_and_may_change():
    body = ast.parse("a = b\nself.n += 1\nx[0] = 1\nf(y)\n(w := 2)\n[q for q in z]").body
    found = assigned(body)
    assert found.names == ("a", "w")
    assert found.all == ("a", "w", "self.n")
    assert set(found.touched) == {"x", "f", "y"}
    assert found.without({"a", "self"}).all == ("w",)


def test_an_attribute_of_what_is_assigned_is_anothers():
    assert assigned(ast.parse("a = f()\na.n = 1").body).all == ("a",)


def test_mentions_count_nested_scopes():
    assert mentions(ast.parse("def f(a): return a + b").body) == {"f": 1, "a": 2, "b": 1}


def test_a_variable_that_starts_in_a_body():
    assert starts(ast.parse("a = 1\nb = a").body, "a")
    assert not starts(ast.parse("b = a\na = 1").body, "a")


def test_a_path_is_an_expression():
    assert ast.unparse(reference("a.b.c", ast.Load())) == "a.b.c"
