"""Ops as people write them: what is written calls the same op on the same operands."""

from __future__ import annotations

import ast

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aotpipe.passes.codegen import op_syntax
from aotpipe.passes.codegen.op_syntax import module_call
from aotpipe.passes.codegen.syntax import dotted, literal, name

ATEN = torch.ops.aten
X = torch.arange(12.0).reshape(3, 4)

CASES = [
    (ATEN.add.Tensor, (X, 2.0), {}, "x + 2.0"),
    (ATEN.add.Tensor, (X, X), {"alpha": 2}, "torch.add(x, x, alpha=2)"),
    (ATEN.pow.Tensor_Scalar, (X, 2), {}, "x ** 2"),
    (ATEN.neg.default, (X,), {}, "-x"),
    (ATEN.lt.Scalar, (X, 3), {}, "x < 3"),
    (ATEN.matmul.default, (X, X.T), {}, None),
    (ATEN.index.Tensor, (X, [None, torch.tensor([1])]), {}, None),
    (ATEN.select.int, (X, 1, 2), {}, "x[:, 2]"),
    (ATEN.select.int, (X, -1, 2), {}, "x.select(-1, 2)"),
    (ATEN.slice.Tensor, (X, 0, 1, 9223372036854775807), {}, "x[1:]"),
    (ATEN.slice.Tensor, (X, 1, None, -1), {}, "x[:, :-1]"),
    (ATEN.reshape.default, (X, [4, 3]), {}, "x.reshape(4, 3)"),
    (ATEN.reshape.default, (X, [-1]), {}, "x.reshape(-1)"),
    (ATEN.to.dtype, (X, torch.int64, False, False), {}, "x.to(torch.int64)"),
    (
        ATEN.full.default,
        ([2], 1.0),
        {"device": torch.device("cpu"), "pin_memory": False},
        "torch.full((2,), 1.0)",
    ),
    (ATEN.gelu.default, (X,), {"approximate": "tanh"}, "F.gelu(x, approximate='tanh')"),
    (ATEN.softmax.int, (X, -1), {}, "x.softmax(-1)"),
    (ATEN.cat.default, ([X, X], 1), {}, "torch.cat([x, x], 1)"),
    (ATEN.upsample_nearest2d.vec, (X[None, None], None, [2.0, 2.0]), {}, None),
    (ATEN._softmax.default, (X, -1, False), {}, "torch.ops.aten._softmax.default(x, -1, False)"),
]


@pytest.mark.parametrize(("op", "args", "kwargs", "wanted"), CASES, ids=[str(case[0]) for case in CASES])
def test_what_is_written_computes_the_same(op, args, kwargs, wanted):
    known: dict[str, object] = {"torch": torch, "F": F}

    def expression(value: object) -> ast.expr:
        if value is X:
            known["x"] = X
            return name("x")
        if isinstance(value, torch.Tensor):
            known[f"t{len(known)}"] = value
            return name(list(known)[-1])
        return literal(value, expression)

    made = op_syntax.op_expression(
        op, [expression(each) for each in args], {k: expression(v) for k, v in kwargs.items()}
    )
    text = ast.unparse(ast.fix_missing_locations(made))
    assert wanted is None or text == wanted
    torch.testing.assert_close(eval(text, known), op(*args, **kwargs), rtol=0, atol=0)


def test_symbols_are_pythons_own():
    import math
    import operator

    made = [
        op_syntax.op_expression(operator.add, [name("a"), literal(1)], {}),
        op_syntax.op_expression(torch.sym_max, [name("a"), literal(1)], {}),
        op_syntax.op_expression(math.ceil, [name("a")], {}),
        op_syntax.op_expression(operator.truediv, [name("a"), literal(2)], {}),
    ]
    assert [ast.unparse(each) for each in made] == ["a + 1", "torch.sym_max(a, 1)", "math.ceil(a)", "a / 2"]


def made(module: nn.Module, op: object, *args: str) -> str | None:
    leaves = {
        each: (each.rpartition(".")[2], dotted("self.m"), module)
        for each in args
        if each.startswith("self.m.")
    }
    found = module_call(op, [ast.parse(each, mode="eval").body for each in args], leaves)
    return None if found is None else ast.unparse(found)


def test_a_linear_with_and_without_a_bias():
    assert (
        made(nn.Linear(2, 3), ATEN.linear.default, "x + 1", "self.m.weight", "self.m.bias") == "self.m(x + 1)"
    )
    assert made(nn.Linear(2, 3, bias=False), ATEN.linear.default, "x", "self.m.weight") == "self.m(x)"


def test_an_embedding_and_a_cell():
    assert made(nn.Embedding(2, 3), ATEN.embedding.default, "self.m.weight", "i") == "self.m(i)"
    names = [f"self.m.{each}" for each in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    assert made(nn.GRUCell(2, 3), ATEN.gru_cell.default, "x", "h", *names) == "self.m(x, h)"


def test_weights_that_are_used_otherwise():
    assert made(nn.Linear(2, 3), ATEN.linear.default, "x", "self.m.weight") is None
    assert made(nn.Linear(2, 3), ATEN.linear.default, "x", "w") is None
    assert made(nn.Embedding(2, 3), ATEN.linear.default, "x", "self.m.weight") is None
    assert made(nn.Embedding(2, 3, max_norm=1.0), ATEN.embedding.default, "self.m.weight", "i") is None
