"""torch's own modules are called where they are one op over all their parameters."""

from __future__ import annotations

import ast

import torch
from torch import nn

from aotpipe.tools.rewrite.expressions import dotted
from aotpipe.tools.rewrite.module_calls import module_call

ATEN = torch.ops.aten


def made(module: nn.Module, op: object, *args: str) -> str | None:
    def leaf_of(text: str):
        owner, _, last = text.rpartition(".")
        return (last, dotted("self.m"), module) if owner == "self.m" else None

    found = module_call(op, [ast.parse(each, mode="eval").body for each in args], leaf_of)
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
