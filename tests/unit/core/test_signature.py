"""Signatures, tensors, symbols and dims round-trip through their strings and JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.core.signature import (
    DTYPES,
    Constant,
    Presence,
    Signature,
    Symbol,
    TensorSpec,
    dim_symbols,
    evaluate_dim,
)

names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}(\.[a-z0-9_]{1,8}){0,2}", fullmatch=True)
symbol_names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
dims = st.one_of(
    st.integers(0, 10**9),
    symbol_names,
    st.builds("{}*{} + {}".format, st.integers(2, 9), symbol_names, st.integers(1, 9)),
    st.builds("Max({}, {})".format, st.integers(0, 9), symbol_names),
)
numbers = st.one_of(st.integers(-(2**63), 2**63), st.floats(allow_nan=False))
ranges = st.none() | st.tuples(numbers, numbers)
tensors = st.builds(
    TensorSpec, names, st.sampled_from(sorted(DTYPES)), st.lists(dims, max_size=4).map(tuple), ranges
)
constants = st.builds(
    Constant,
    names,
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
)
symbols = st.builds(Symbol, symbol_names, st.integers(0, 99), st.none() | st.integers(99, 9999))
presences = st.builds(
    Presence, names, names, st.lists(names, max_size=3).map(tuple), st.sampled_from(("missing", "none"))
)
signatures = st.builds(
    Signature,
    inputs=st.lists(tensors | constants, max_size=3).map(tuple),
    outputs=st.lists(tensors | constants, max_size=3).map(tuple),
    state=st.lists(tensors, max_size=2).map(tuple),
    symbols=st.lists(symbols, max_size=2).map(tuple),
    optional=st.lists(presences, max_size=2).map(tuple),
    optional_outputs=st.lists(presences, max_size=2).map(tuple),
)


@given(tensors)
def test_a_tensor_round_trips(tensor: TensorSpec) -> None:
    assert TensorSpec.parse(str(tensor)) == tensor


@given(symbols)
def test_a_symbol_round_trips(symbol: Symbol) -> None:
    assert Symbol.parse(str(symbol)) == symbol


@given(signatures)
def test_a_signature_round_trips_through_json(signature: Signature) -> None:
    assert Signature.from_json(json.loads(json.dumps(signature.to_json()))) == signature


def test_a_signature_without_optional_parts_is_written_as_before() -> None:
    assert set(Signature(inputs=(), outputs=()).to_json()) == {"inputs", "outputs", "state", "symbols"}
    with pytest.raises(ValueError, match="absent"):
        Signature.from_json(
            {
                **Signature(inputs=(), outputs=()).to_json(),
                "optional": [{"name": "x", "flag": "y", "members": [], "absent": "gone"}],
            }
        )


def test_a_constant_that_json_lacks_is_written_as_its_repr() -> None:
    signature = Signature(inputs=(Constant("scale", float("-inf")),), outputs=())
    text = json.dumps(signature.to_json(), allow_nan=False)
    assert Signature.from_json(json.loads(text)).inputs == (Constant("scale", "-inf"),)


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_a_dim_is_evaluated(n: int, m: int) -> None:
    sizes = {"n": n, "m": m}
    assert evaluate_dim("2*n + 1", sizes) == 2 * n + 1
    assert evaluate_dim("((n + 7)//8) - m", sizes) == (n + 7) // 8 - m
    assert evaluate_dim("Max(n, Min(m, 5))", sizes) == max(n, min(m, 5))
    assert evaluate_dim("n**2 % 3", sizes) == n**2 % 3
    assert evaluate_dim(7, {}) == 7


@pytest.mark.parametrize(
    "dim", ["__import__('os')", "n.bit_length()", "'a'*n", "n if m else 2", "[n]", "lambda: n"]
)
def test_a_dim_is_no_python(dim: str) -> None:
    with pytest.raises(ValueError, match="not a dim expression"):
        evaluate_dim(dim, {"n": 1, "m": 1})


def test_a_dim_names_its_symbols() -> None:
    assert dim_symbols("Max(n, 2*m)") == {"n", "m"}
    assert dim_symbols(4) == frozenset()


def test_an_unknown_size_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        evaluate_dim("n", {})


@pytest.mark.parametrize("text", ["x", "x: float33[2]", "x: float32", "x float32[2]", "x: float32[2] in [1]"])
def test_what_is_no_tensor_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a tensor"):
        TensorSpec.parse(text)


def test_only_tensors_are_passed_and_computed() -> None:
    x, flag = TensorSpec("x", "float32", (2,)), Constant("flag", True)
    signature = Signature(inputs=(x, flag), outputs=(flag, x))
    assert signature.tensor_inputs == signature.tensor_outputs == (x,)


def test_commas_in_parentheses_part_no_dims():
    text = "x: float32[n, Max(1, (m - 1)//2), Min(Max(1, n), m), 3]"
    spec = TensorSpec.parse(text)
    assert spec.dims == ("n", "Max(1, (m - 1)//2)", "Min(Max(1, n), m)", 3)
    assert str(spec) == text


@pytest.mark.parametrize(
    "text", ["9**9**9", "n**63", "-n * n", "8 // (n - n)", "(-n)**0.5", "floor(log2(n - n))"]
)
def test_numbers_have_64_bits_on_the_way_to_a_size(text):
    with pytest.raises(ArithmeticError):
        evaluate_dim(text, {"n": 1 << 40})
