"""Walks of one function's own scope, and makers of nodes."""

from __future__ import annotations

import ast

from aotpipe.canonicalize.rewrite import ast_builders

FUNCTION = """
def f(x):
    if x:
        y = 1
    def g():
        return 2
"""


def test_a_nested_function_is_another_scope():
    body = ast.parse(FUNCTION).body[0]
    assert isinstance(body, ast.FunctionDef)
    assert ast_builders.contains(body.body, ast.If)
    assert not ast_builders.contains(body.body, ast.Return)


def test_statements_inside_of_statements():
    node = ast.parse("try:\n    a\nexcept E:\n    b\nelse:\n    c\nfinally:\n    d").body[0]
    assert [ast.unparse(each) for block in ast_builders.blocks(node) for each in block] == [
        "a",
        "c",
        "d",
        "b",
    ]


def test_nodes_are_what_they_say():
    assert (
        ast.unparse(ast.fix_missing_locations(ast_builders.assign("a", ast_builders.negated("b"))))
        == "a = not b"
    )
    assert ast.unparse(ast_builders.later(ast.Constant(1))) == "lambda: 1"
    assert ast_builders.dotted(ast.parse("a.b.c", mode="eval").body) == "a.b.c"
    assert ast_builders.dotted(ast.parse("a().b", mode="eval").body) is None


def test_new_nodes_have_the_line_of_the_node_before():
    function = ast.parse(FUNCTION).body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body.insert(1, ast_builders.assign("z", ast.Constant(1)))
    ast_builders.located(function)
    assert function.body[1].lineno == 4
