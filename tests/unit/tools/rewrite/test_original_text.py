"""What is not changed is printed as it was written, comments included."""

from __future__ import annotations

import ast

from aotpipe.tools.rewrite import original_text
from aotpipe.tools.rewrite.formatting import text_of

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
    original_text.mark(function, CODE.splitlines())
    function.body[2].test = ast.Name("w", ast.Load())
    text = text_of([function])
    assert "    # why\n    y = x  +  1  # odd spaces\n" in text
    assert "    if w:\n        # inside\n        z = [1,\n     2]" in text or "        z = [1," in text
    assert text.endswith("return z")
