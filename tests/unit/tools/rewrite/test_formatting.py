"""Statements as text: long calls broken, comments once, functions apart."""

from __future__ import annotations

import ast

from aotpipe.errors import SourceLine
from aotpipe.tools.rewrite import formatting
from aotpipe.tools.rewrite.formatting import WIDTH, text_of


def test_a_long_call_is_broken():
    names = ", ".join(f"a_long_argument_{n}" for n in range(8))
    [line] = ast.parse(f"value = self.layer({names}, key=[{names}])").body
    text = text_of([line], 1)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert ast.dump(ast.parse(text.replace("    ", "", 1))) == ast.dump(ast.Module([line], []))


def test_a_place_is_said_once():
    body = ast.parse("a = 1\nb = 2\nc = 3").body
    for statement, line in zip(body, (7, 7, 9), strict=True):
        statement.where = SourceLine("m.py", line)
    assert text_of(body) == "# m.py:7\na = 1\nb = 2\n# m.py:9\nc = 3"


def test_functions_stand_apart():
    body = ast.parse("a = 1\ndef f(x):\n    return x\nb = 2").body
    assert text_of(body) == "a = 1\n\ndef f(x):\n    return x\n\nb = 2"


def test_a_docstring_and_a_decorator():
    [made] = ast.parse(
        'class A(B):\n    """Says so."""\n    @c\n    def f(self):\n        """Does."""\n'
    ).body
    assert text_of([made]) == (
        'class A(B):\n    """Says so."""\n\n    @c\n    def f(self):\n        """Does."""'
    )


CODE = '''def f(x):
    """Says so."""
    # why
    y = x  +  1  # odd spaces

    if y:
        # inside
        z = [1,
             2]
    return z
'''


def test_unchanged_statements_are_verbatim():
    [function] = ast.parse(CODE).body
    assert isinstance(function, ast.FunctionDef)
    formatting.mark(function, CODE.splitlines())
    function.body[2].test = ast.Name("w", ast.Load())
    text = text_of([function])
    assert "    # why\n    y = x  +  1  # odd spaces\n" in text
    assert "    if w:\n        # inside\n        z = [1,\n     2]" in text or "        z = [1," in text
    assert text.endswith("return z")
