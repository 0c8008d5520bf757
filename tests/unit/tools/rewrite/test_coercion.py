"""Values in the form that a variable has on all paths."""

from __future__ import annotations

import ast

import pytest
import torch

from aotpipe.canonicalize.trace.abstract_values import UNDEFINED, meet
from aotpipe.tools.rewrite import coercion
from aotpipe.tools.rewrite.expression_rewrites import Unstaged
from aotpipe.tools.rewrite.expressions import name

NODE = ast.Pass()
X = torch.ones(2)


def made(value: object, *others: object) -> str:
    return ast.unparse(coercion.as_form(name("v"), meet([value, *others]), value, NODE))


def test_numbers_and_dtypes():
    assert made(1, torch.tensor(3)) == "torch.tensor(v)"
    assert made(1, torch.tensor(3.0)) == "torch.tensor(v, dtype=torch.float32)"
    assert made(X.int(), X) == "v.to(torch.float32)"
    assert made(X, X + 1) == "v"
    assert made((X, 1), (X + 1, 2)) == "(v[0], torch.tensor(v[1]))"
    assert made((X, X), (X + 1, X)) == "v"


def test_what_has_no_value_yet_is_zeros():
    assert ast.unparse(coercion.zeros(meet([X, UNDEFINED]), NODE)) == "torch.zeros((2,), dtype=torch.float32)"


def test_what_has_no_form():
    with pytest.raises(Unstaged, match="None on one path"):
        made(X, None)
    with pytest.raises(Unstaged, match="takes the place of a tensor"):
        made(1, X)


def test_kinds():
    assert coercion.is_plain("a")
    assert not coercion.is_plain(object())
    assert coercion.is_one_tensor(meet([X, X + 1]))
    assert not coercion.is_one_tensor(meet([(X,), (X + 1,)]))
    assert coercion.has_dims(meet([X, X + 1]))
    assert not coercion.has_dims(meet([1, 2]))
