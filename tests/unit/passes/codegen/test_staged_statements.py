"""Jumps of staged statements become flags; what is read after a statement, around loops and jumps too."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from aotpipe.canonicalize.trace.decisions import Decision
from aotpipe.passes.codegen import staged_statements
from aotpipe.passes.codegen.expression_rewrites import Unsupported
from aotpipe.passes.codegen.staged_statements import Lowering

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


def test_what_is_live_after_a_staged_statement():
    function, _ = lowered(LOOP, loop=2, branch=3)
    flag, loop, _ = function.body
    stop = flag.targets[0].id
    assert loop.live == {"x"}
    assert loop.body[0].live >= {"x", stop}


def test_what_a_nested_function_reads_is_live():
    function, _ = lowered("def f(x):\n    def g():\n        return y\n    if x:\n        y = x\n", branch=4)
    assert function.body[1].live == {"y"}


def test_names_that_are_set_needed_and_read():
    body: Any = ast.parse("a, b = c\nd[e] = f\nfor g in h:\n    i = g\n[j for j in k]").body
    assert staged_statements.assigned(body) == ["a", "b", "g", "i", "d"]
    assert staged_statements.item_written(body) == ["d"]
    assert staged_statements.needed(body, ["a", "d", "i", "k"]) == {"d", "k"}
    assert staged_statements.needed(ast.parse("def l(): m\nl()").body, ["l", "m"]) == {"m"}


@pytest.mark.parametrize(
    "text",
    [
        "with torch.no_grad():\n    t = x * 2\nx = x + t",
        "x = x + (t := x * 2)\nx = x + t",
        # As `Matches` leaves it.
        "if n == 1: t = x\nelse:\n    if True: t = x * 2\nx = x + t",
    ],
)
def test_what_is_set_first_is_not_needed(text: str):
    assert staged_statements.needed(ast.parse(text).body, ["t", "x"]) == {"x"}
