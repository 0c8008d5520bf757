"""Constants and attributes as expressions that read back; statements as text, long calls broken."""

from __future__ import annotations

import ast
import math

import pytest
import torch

from aotpipe.errors import SourceLine
from aotpipe.passes.codegen import syntax
from aotpipe.passes.codegen.syntax import WIDTH, text_of


def text(value: object) -> str:
    return ast.unparse(syntax.literal(value))


@pytest.mark.parametrize(
    "value", [1, -1, 2.5, True, None, "a'b", (1,), [1, (2, -3.0)], {"a": [1]}, 1e-30, complex(1, -2), ...]
)
def test_a_literal_reads_back(value: object):
    assert eval(text(value)) == value


def test_numbers_that_are_not_finite_and_minus_zero():
    assert text(math.inf) == "float('inf')"
    assert math.isnan(eval(text(math.nan)))
    assert math.copysign(1, eval(text(-0.0))) == -1


def test_a_power_of_a_negative_number_is_bracketed():
    node = ast.BinOp(syntax.literal(-1), ast.Pow(), syntax.literal(2))
    assert eval(ast.unparse(node)) == 1


def test_torchs_own_constants():
    assert text(torch.float32) == "torch.float32"
    assert text(torch.contiguous_format) == "torch.contiguous_format"
    assert text(torch.device("cpu")) == "torch.device('cpu')"
    with pytest.raises(TypeError, match="object has no expression"):
        syntax.literal(object())


@pytest.mark.parametrize(
    ("tensor", "wanted"),
    [
        (torch.zeros(2, 3), "torch.zeros((2, 3), dtype=torch.float32)"),
        (torch.ones(0, dtype=torch.int64), "torch.zeros((0,), dtype=torch.int64)"),
        (torch.full((2,), 3), "torch.full((2,), 3, dtype=torch.int64)"),
        (torch.tensor(True), "torch.tensor(True, dtype=torch.bool)"),
        (torch.tensor([1.5, -2]), "torch.tensor([1.5, -2.0], dtype=torch.float32)"),
    ],
)
def test_a_tensor_of_few_numbers(tensor: torch.Tensor, wanted: str):
    made = syntax.of_tensor(tensor)
    assert made is not None
    assert ast.unparse(made) == wanted
    torch.testing.assert_close(eval(wanted), tensor, rtol=0, atol=0)


def test_a_large_tensor_has_no_expression():
    assert syntax.of_tensor(torch.arange(1000)) is None


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
    syntax.mark(function.body, CODE.splitlines())
    function.body[2].test = ast.Name("w", ast.Load())
    text = text_of([function])
    assert "    # why\n    y = x  +  1  # odd spaces\n" in text
    assert "    if w:\n        # inside\n        z = [1,\n     2]" in text or "        z = [1," in text
    assert text.endswith("return z")
