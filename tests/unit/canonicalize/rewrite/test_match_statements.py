"""`match` over plain values as `if` and `elif`."""

from __future__ import annotations

import ast
import textwrap

import pytest

from aotpipe.canonicalize.rewrite.match_statements import Matches

HEADER = "def f(v, w=0):\n    got = []\n"


def both(body: str) -> tuple[object, object, bool]:
    """A function as it is and rewritten, and whether a match is left in it."""
    text = HEADER + textwrap.indent(textwrap.dedent(body), "    ") + "    return got\n"
    tree = ast.parse(text)
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    Matches().rewrite(function)
    left = any(isinstance(node, ast.Match) for node in ast.walk(tree))
    spaces: list[dict[str, object]] = [{}, {}]
    exec(text, spaces[0])
    exec(compile(ast.fix_missing_locations(tree), "f", "exec"), spaces[1])
    return spaces[0]["f"], spaces[1]["f"], left


PLAIN = """
match v:
    case 1 | 2:
        got.append("few")
    case None:
        got.append("none")
    case True:
        got.append("true")
    case -1.5 as number:
        got.append(number)
    case other if other == "a" and w:
        got.append(other)
    case "a":
        match w:
            case 0:
                got.append("inner")
    case _:
        got.append("rest")
"""


@pytest.mark.parametrize("value", [1, 2, 2.0, None, True, -1.5, "a", "b", 0])
@pytest.mark.parametrize("other", [0, 1])
def test_values(value: object, other: int):
    plain, rewritten, left = both(PLAIN)
    assert not left
    assert plain(value, other) == rewritten(value, other)  # type: ignore[operator]


def test_what_takes_a_value_apart_stays():
    plain, rewritten, left = both(
        "match v:\n    case [a, *_]:\n        got.append(a)\n    case _:\n        pass\n"
    )
    assert left
    assert plain([1, 2]) == rewritten([1, 2]) == [1]  # type: ignore[operator]
