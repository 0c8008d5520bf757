"""Constants and attributes as expressions: what is read back is what was written."""

from __future__ import annotations

import ast
import math

import pytest
import torch

from aotpipe.tools.rewrite import expressions


def text(value: object) -> str:
    return ast.unparse(expressions.literal(value))


@pytest.mark.parametrize(
    "value",
    [1, -1, 2.5, True, None, "a'b", (1,), [1, (2, -3.0)], {"a": [1]}, 1e-30, complex(1, -2), ...],
)
def test_a_literal_reads_back(value: object):
    assert eval(text(value)) == value


def test_numbers_that_are_not_finite_and_minus_zero():
    assert text(math.inf) == "float('inf')"
    assert math.isnan(eval(text(math.nan)))
    assert math.copysign(1, eval(text(-0.0))) == -1


def test_a_power_of_a_negative_number_is_bracketed():
    node = ast.BinOp(expressions.literal(-1), ast.Pow(), expressions.literal(2))
    assert eval(ast.unparse(node)) == 1


def test_torchs_own_constants():
    assert text(torch.float32) == "torch.float32"
    assert text(torch.contiguous_format) == "torch.contiguous_format"
    assert text(torch.device("cpu")) == "torch.device('cpu')"
    with pytest.raises(TypeError, match="object has no expression"):
        expressions.literal(object())


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
    made = expressions.of_tensor(tensor)
    assert made is not None
    assert ast.unparse(made) == wanted
    torch.testing.assert_close(eval(wanted), tensor, rtol=0, atol=0)


def test_a_large_tensor_has_no_expression():
    assert expressions.of_tensor(torch.arange(1000)) is None


def test_a_path_through_lists_and_odd_names():
    made = expressions.attribute("blocks.0.w", {"blocks"}.__contains__)
    assert ast.unparse(made) == "self.blocks[0].w"
    assert ast.unparse(expressions.attribute("a.0", lambda _: False)) == "getattr(self.a, '0')"
