"""What is read after a statement, around loops and jumps too."""

from __future__ import annotations

import ast

from aotpipe.tools.rewrite import liveness

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
    liveness.mark(body)
    first, loop, last, _ = body
    assert first.live == {"a", "n", "test", "c"}
    assert loop.live == {"c"}
    assert last.live == {"d"}
    assert loop.body[1].live >= {"b", "n"}
    assert loop.body[-1].live >= {"a", "n", "test"}


def test_a_flag_that_ends_a_loop_is_read_at_its_head():
    body = parsed("for i in r:\n    x = i\n    stop = x")
    body[0].stop = "stop"
    liveness.mark(body)
    assert "stop" in body[0].body[-1].live


def test_names_that_are_set_needed_and_read():
    body = parsed("a, b = c\nd[e] = f\nfor g in h:\n    i = g\n[j for j in k]")
    assert liveness.assigned(body) == ["a", "b", "d", "g", "i"]
    assert liveness.needed(body, ["a", "d", "i", "k"]) == {"d", "k"}
    assert liveness.reads(body[1]) == {"d", "e", "f"}


def test_asking_marks_nothing():
    body = parsed("a = 1\nb = a")
    liveness.mark(body)
    before = body[0].live
    liveness.needed(body, ["a"])
    assert body[0].live == before
