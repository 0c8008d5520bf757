"""What is known of variables, and tuples by their parts."""

from __future__ import annotations

import ast

import pytest
import torch

from aotpipe.canonicalize.trace.decisions import Decision
from aotpipe.canonicalize.values.abstract_values import UNDEFINED, join_values
from aotpipe.tools.rewrite import trace_facts
from aotpipe.tools.rewrite.expression_rewrites import Unsupported
from aotpipe.tools.rewrite.expressions import name

X = torch.ones(2)
NOTED = trace_facts.Facts(
    Decision(
        kind="branch",
        path="m.py",
        line=1,
        names=("x", "pair", "flag", "thing"),
        abstracts=(
            join_values([X, X + 1]),
            join_values([(X, 1), (X + 1, 2)]),
            join_values([True, True]),
            join_values([object] * 2),
        ),
        before=(X, None, True, None),
        after=((X, (X, 1), True, None), (X + 1, (X, 2), True, None)),
    )
)


def test_forms_and_values():
    assert NOTED.form("y") is None
    assert (NOTED.parts("x"), NOTED.parts("pair"), NOTED.parts("y")) == (0, 2, 0)
    assert NOTED.after("pair", 1)[1] == 2
    assert NOTED.after("x", 5) is None
    node = ast.Pass()
    assert NOTED.is_constant("flag")
    assert ast.unparse(NOTED.literal("flag", node)) == "True"
    with pytest.raises(Unsupported, match="`thing` is an object"):
        NOTED.literal("thing", node)
    assert trace_facts.Facts(None).form("x") is None


def test_tuples_go_part_by_part():
    assert trace_facts.part_names("pair", 2) == ["pair_0", "pair_1"]
    assert [ast.unparse(each) for each in trace_facts.parts_of(name("pair"), 2)] == ["pair[0]", "pair[1]"]
    [made] = trace_facts.repacked({"pair": 2, "x": 0})
    assert ast.unparse(ast.fix_missing_locations(made)) == "pair = (pair_0, pair_1)"


NODE = ast.Pass()


def made(value: object, *others: object) -> str:
    return ast.unparse(trace_facts.as_form(name("v"), join_values([value, *others]), value, NODE))


def test_numbers_and_dtypes():
    assert made(1, torch.tensor(3)) == "torch.tensor(v)"
    assert made(1, torch.tensor(3.0)) == "torch.tensor(v, dtype=torch.float32)"
    assert made(X.int(), X) == "v.to(torch.float32)"
    assert made(X, X + 1) == "v"
    assert made((X, 1), (X + 1, 2)) == "(v[0], torch.tensor(v[1]))"
    assert made((X, X), (X + 1, X)) == "v"


def test_what_has_no_value_yet_is_zeros():
    assert (
        ast.unparse(trace_facts.zeros(join_values([X, UNDEFINED]), NODE))
        == "torch.zeros((2,), dtype=torch.float32)"
    )


def test_what_has_no_form():
    with pytest.raises(Unsupported, match="None on one path"):
        made(X, None)
    with pytest.raises(Unsupported, match="takes the place of a tensor"):
        made(1, X)


def test_kinds():
    assert trace_facts.is_plain("a")
    assert not trace_facts.is_plain(object())
    assert trace_facts.is_one_tensor(join_values([X, X + 1]))
    assert not trace_facts.is_one_tensor(join_values([(X,), (X + 1,)]))
    assert trace_facts.has_dims(join_values([X, X + 1]))
    assert not trace_facts.has_dims(join_values([1, 2]))
