"""Dim expressions: what they print computes what torch computes."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._sympy import functions as fn
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from aotpipe.core.signature import evaluate_dim
from aotpipe.export import symbols

A, B = sympy.symbols("s0 s77", integer=True, positive=True)
NAMES = {A: "batch", B: "seq"}
SMALL = st.integers(1, 12)

leaves = st.one_of(st.sampled_from([A, B]), SMALL.map(sympy.Integer))


def _grow(inner: st.SearchStrategy[sympy.Expr]) -> st.SearchStrategy[sympy.Expr]:
    pairs = st.tuples(inner, inner)
    return st.one_of(
        pairs.map(lambda p: p[0] + p[1]),
        pairs.map(lambda p: p[0] * p[1]),
        pairs.map(lambda p: fn.Max(*p)),
        pairs.map(lambda p: fn.Min(*p)),
        st.tuples(inner, SMALL).map(lambda p: fn.FloorDiv(p[0], p[1])),
        st.tuples(inner, SMALL).map(lambda p: fn.CeilDiv(p[0], p[1])),
        st.tuples(st.sampled_from([A, B, A + B, 3 * A, A * B]), SMALL).map(lambda p: fn.Mod(*p)),
        st.tuples(inner, SMALL).map(lambda p: p[0] - p[1]),
    )


expressions = st.recursive(leaves, _grow, max_leaves=6)


@settings(max_examples=100, deadline=None)
@given(expressions, st.integers(1, 500), st.integers(1, 500))
def test_the_text_computes_the_expression(expr: sympy.Expr, a: int, b: int) -> None:
    text = symbols.expression(expr, NAMES)
    expected = expr.xreplace({A: sympy.Integer(a), B: sympy.Integer(b)})
    assert evaluate_dim(text, {"batch": a, "seq": b}) == int(expected)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (sympy.Integer(4), 4),
        (2 * A + 1, "2*batch + 1"),
        (A - 1, "batch - 1"),
        (3 - A, "-batch + 3"),
        (fn.FloorDiv(A - 3, 2) + 1, "(batch - 3)//2 + 1"),
        (B * A * 3 - A, "3*batch*seq - batch"),
        (A / 2, "batch//2"),
        (-fn.FloorDiv(A, 2) + 3, "-(batch//2) + 3"),
        (fn.Max(1, A - 2 * B), "Max(1, -2*seq + batch)"),
        (fn.TruncToInt(2.0 * fn.ToFloat(A)), "2*batch"),
        (fn.CeilToInt(fn.IntTrueDiv(A, B)), "(batch + seq - 1)//seq"),
        (fn.FloorToInt(fn.IntTrueDiv(A, 2)), "batch//2"),
        (fn.ModularIndexing(A, 2, 3), "(batch//2)%3"),
        (fn.PowByNatural(A, 2), "batch**2"),
    ],
)
def test_expressions_read_well(expr: sympy.Expr, text: str | int) -> None:
    assert symbols.expression(expr, NAMES) == text


@pytest.mark.parametrize(
    "expr", [fn.TruncToInt(1.5 * fn.ToFloat(A)), sympy.Symbol("u0", integer=True) + 1, sympy.sqrt(A)]
)
def test_what_integers_cannot_say_is_refused(expr: sympy.Expr) -> None:
    with pytest.raises(symbols.Unprintable):
        symbols.expression(expr, NAMES)


def test_bounds_are_those_of_sizes() -> None:
    assert symbols.bounds(ValueRanges(1, 64)) == (1, 64)
    assert symbols.bounds(ValueRanges(-int_oo, int_oo)) == (0, None)
    assert symbols.bounds(ValueRanges(0, 2**63 - 2)) == (0, None)


def test_identifiers_are_free_and_valid() -> None:
    assert symbols.identifier("batch.mask_0", ()) == "batch_mask_0"
    assert symbols.identifier("0.x", ()) == "_0_x"
    assert symbols.identifier("x", ("x", "x_1")) == "x_2"
    assert symbols.identifier("Max", ()) == "Max_1"
