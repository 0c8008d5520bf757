"""Jumps of staged statements become flags, and the statements under a flag are staged too."""

from __future__ import annotations

import ast

import pytest

from aotpipe.canonicalize.trace.decisions import Decision
from aotpipe.tools.rewrite.expression_rewrites import Unsupported
from aotpipe.tools.rewrite.jump_elimination import Lowering

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
