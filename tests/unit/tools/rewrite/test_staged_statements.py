"""Jumps of staged statements become flags; what is read after a statement, around loops and jumps too."""

from __future__ import annotations

import ast

import pytest

from aotpipe.canonicalize.trace.decisions import Decision
from aotpipe.tools.rewrite import staged_statements
from aotpipe.tools.rewrite.expression_rewrites import Unsupported
from aotpipe.tools.rewrite.staged_statements import Lowering

LOOP = """def f(x, items):
    for i in range(9):
        if x > i:
            break
        x = x + 1
    return x
"""


def lowered(text: str, **kinds: int) -> tuple[ast.FunctionDef, set[int]]:
    [function] = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    staged: set[int] = set()
    notes = [Decision(kind=kind, path="m.py", line=line) for kind, line in kinds.items()]
    Lowering(notes, staged).lower(function)
    return function, staged


def test_a_break_is_a_flag_that_is_tested():
    function, staged = lowered(LOOP, loop=2, branch=3)
    first, loop, _ = function.body
    assert ast.unparse(ast.fix_missing_locations(first)).endswith("= False")
    assert loop.stop == first.targets[0].id
    rest = loop.body[-1]
    assert isinstance(rest, ast.If)
    assert {id(loop), id(loop.body[0]), id(rest)} == staged


def test_what_no_tensor_decides_stays():
    function, staged = lowered(LOOP)
    assert ast.unparse(function) == LOOP.rstrip()
    assert not staged


def test_a_loop_of_pythons_that_a_tensor_ends():
    with pytest.raises(Unsupported, match="when a loop over Python's items ends"):
        lowered(LOOP, branch=3)


CODE = """
a = x
while test(n):
    b = a
    if b:
        c = 1
        break
    a = b + 1
    n = n + 1
d = c
return d
"""


def parsed(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def test_what_is_live_after_each_statement():
    body = parsed(CODE.replace("return d", "d"))
    staged_statements.mark(body)
    first, loop, last, _ = body
    assert first.live == {"a", "n", "test", "c"}
    assert loop.live == {"c"}
    assert last.live == {"d"}
    assert loop.body[1].live >= {"b", "n"}
    assert loop.body[-1].live >= {"a", "n", "test"}


def test_a_flag_that_ends_a_loop_is_read_at_its_head():
    body = parsed("for i in r:\n    x = i\n    stop = x")
    body[0].stop = "stop"
    staged_statements.mark(body)
    assert "stop" in body[0].body[-1].live


def test_names_that_are_set_needed_and_read():
    body = parsed("a, b = c\nd[e] = f\nfor g in h:\n    i = g\n[j for j in k]")
    assert staged_statements.assigned(body) == ["a", "b", "d", "g", "i"]
    assert staged_statements.needed(body, ["a", "d", "i", "k"]) == {"d", "k"}
    assert staged_statements.reads(body[1]) == {"d", "e", "f"}


def test_asking_marks_nothing():
    body = parsed("a = 1\nb = a")
    staged_statements.mark(body)
    before = body[0].live
    staged_statements.needed(body, ["a"])
    assert body[0].live == before
