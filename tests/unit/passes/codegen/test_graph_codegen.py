"""Graphs as statements: run as Python they compute what the graph does."""

from __future__ import annotations

import ast
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.example_call import uncompiled
from aotpipe.passes.codegen.graph_cleanup import simplify
from aotpipe.passes.codegen.graph_codegen import Writer
from aotpipe.passes.codegen.syntax import name, text_of
from tests.unit.passes.codegen.graph import graph

X = torch.arange(6.0).reshape(2, 3) - 2
Y = X.abs() + 1


@cache
def written(function: Any, *args: torch.Tensor, direct: bool = False) -> tuple[str, Any]:
    names = [f"in_{n}" for n in range(len(args))]
    found = graph(function, *args)
    simplify(found)
    statements, result = Writer(name, direct=direct).body(found, [name(each) for each in names])
    text = f"def run({', '.join(names)}):\n{text_of(statements, 1)}\n"
    text += f"    return {ast.unparse(result)}"
    space: dict[str, Any] = {"torch": torch, "F": F}
    exec(text, space)
    return text, space["run"]


def branch(x):
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * x.sum(), (x,))


def two_results(x):
    high, low = torch.cond(x.sum() > 0, lambda x: (x + 1, x - 1), lambda x: (x.clone(), x * 2), (x,))
    return high - low


def loop(x, y):
    def going(i, z):
        return (i < 3) & (z.sum() < 50)

    def trip(i, z):
        return i + 1, torch.cond(z.max() > 1, lambda z: z + y, lambda z: z - x, (z,))

    return torch.while_loop(going, trip, (torch.zeros((), dtype=torch.int64), x))


def in_place(x):
    y = x.clone()
    before = y * 2
    y.add_(1)
    y[0] = before[1]
    return y, before


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (branch, (X,)),
        (branch, (-X.abs(),)),
        (two_results, (X,)),
        (loop, (X, Y)),
        (in_place, (X,)),
        (lambda x: x.topk(2)[1], (X,)),
        (lambda x: x.chunk(3, 1)[2], (X,)),
    ],
)
def test_what_is_written_computes_the_same(function: Any, args: Any):
    text, run = written(function, *args)
    with uncompiled():
        got, want = pytree.tree_leaves(run(*args)), pytree.tree_leaves(function(*args))
    torch.testing.assert_close(got, want, rtol=0, atol=0, msg=text)


@pytest.mark.parametrize(
    ("function", "args"),
    [pytest.param(branch, (X,), marks=pytest.mark.slow), (two_results, (X,)), (loop, (X, Y))],
)
def test_the_ops_themselves_take_everything_as_operands(function: Any, args: Any):
    text, run = written(function, *args, direct=True)
    assert "torch.ops.higher_order." in text
    assert "torch.cond(" not in text
    got, want = pytree.tree_leaves(run(*args)), pytree.tree_leaves(written(function, *args)[1](*args))
    torch.testing.assert_close(got, want, rtol=0, atol=0, msg=text)


def test_a_branch_takes_variables_and_gives_one_tensor_by_itself():
    text, _ = written(branch, X)
    assert "def true_fn_1(in_0):\n        return in_0 + 1" in text
    assert "torch.cond(" in text
    assert "(in_0,))" in text


def test_nothing_is_inlined_across_a_write():
    text, _ = written(in_place, X)
    assert text.index("* 2") < text.index("add_")


def test_names_are_free():
    writer = Writer(name)
    assert [writer.free(each) for each in ("x", "x", "self", "1a", "a.b", "class")] == [
        "x",
        "x_2",
        "self_2",
        "v1a",
        "a_b",
        "class_",
    ]


class Copying(torch.nn.Module):
    def forward(self, x):
        doubled = (x * 2).clone()
        return doubled.sin() - doubled


def test_a_variable_has_its_name_where_a_copy_comes_last():
    text, _ = written(Copying(), X)
    assert "doubled = in_0 * 2" in text
