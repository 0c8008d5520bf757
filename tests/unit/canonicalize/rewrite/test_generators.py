"""Functions that yield: which are written as calls of what takes their values."""

from __future__ import annotations

import ast
import textwrap

import pytest

from aotpipe.canonicalize.rewrite import generators, statements


def test_plain_yields_are_written_anew() -> None:
    (node,) = ast.parse("def f(x):\n    yield x\n    yield from (x, x)\n    return").body
    assert isinstance(node, ast.FunctionDef)
    written = generators.split(node, lambda function: function)
    assert written is not None
    assert not generators.is_generator(written)


@pytest.mark.parametrize(
    "body", ["got = yield x", "yield x\n    return 3", "print((yield))"], ids=["sent", "returned", "nested"]
)
def test_a_yield_with_a_value_is_left_alone(body: str) -> None:
    (node,) = ast.parse(textwrap.dedent(f"def f(x):\n    {body}")).body
    assert isinstance(node, ast.FunctionDef)
    assert generators.is_generator(node)
    assert statements.rewrite(node) is None
