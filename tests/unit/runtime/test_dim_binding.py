import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aotpipe.core.signature import Symbol, TensorSpec, evaluate_dim
from aotpipe.errors import InputShape
from aotpipe.runtime.dim_binding import Affine, Binder, affine


def binder(*dims, symbols=()):
    specs = [TensorSpec(f"x{i}", "float32", tuple(each)) for i, each in enumerate(dims)]
    return Binder(specs, [Symbol.parse(text) for text in symbols])


@pytest.mark.parametrize(
    ("dim", "form"),
    [
        (3, None),
        ("d", Affine(1, "d", 0)),
        ("2*d", Affine(2, "d", 0)),
        ("d*2 + 1", Affine(2, "d", 1)),
        ("3*(d - 1)", Affine(3, "d", -3)),
        ("8 - d", Affine(-1, "d", 8)),
        ("a + b", None),
        ("a*b", None),
        ("d*d - d*d + d", Affine(1, "d", 0)),
        ("d*(d - 1)*(d - 2) + d", None),
        ("d // 2", None),
        ("Max(1, d)", None),
    ],
)
def test_affine(dim, form):
    assert affine(dim) == form


@given(st.integers(1, 9), st.integers(-9, 9), st.integers(0, 99))
def test_solving_inverts_an_affine_dim(scale, offset, value):
    dim = f"{scale}*d + {offset}"
    size = evaluate_dim(dim, {"d": value})
    assume(size >= 0)
    assert binder([dim], symbols=["d=0..99"]).bind(((size,),)) == {"d": value}


@given(
    st.lists(
        st.sampled_from(["a", "b", "2*a", "b + 1", "a + b", "a*b", "a - a + b", "b // 2", "Max(a, b)", 4]),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(0, 5),
    st.integers(-2, 2),
)
def test_what_binds_evaluates_to_the_shape(dims, a, b, where, off):
    """Whatever shape is accepted is the one that the dims give for the sizes found, within their ranges."""
    shape = [evaluate_dim(dim, {"a": a, "b": b}) for dim in dims]
    shape[where % len(shape)] = max(0, shape[where % len(shape)] + off)
    bound = binder(dims, symbols=["a=1..20", "b=1..20"])
    try:
        sizes = bound.bind((tuple(shape),))
    except InputShape:
        assert off, "the sizes that made the shape must be accepted"
        return
    assert all(1 <= size <= 20 for size in sizes.values())
    assert [evaluate_dim(dim, sizes) for dim in dims] == shape


@pytest.mark.parametrize(
    ("dims", "symbols", "shapes", "message"),
    [
        ([[2, 3]], [], [(2,)], "input 'x0' has 1 dims, wants 2"),
        ([[2, 3]], [], [(2, 4)], "input 'x0' has size 4 in dim 1, wants 3"),
        ([["b"]], ["b=1..64"], [(65,)], "input 'x0' has size 65 in dim 0, wants b in 1..64"),
        ([["b"]], ["b=2.."], [(1,)], "input 'x0' has size 1 in dim 0, wants b in 2.."),
        ([["2*b"]], ["b=1..4"], [(10,)], "input 'x0' has size 10 in dim 0, wants 2*b with b in 1..4"),
        ([["16*b"]], ["b=1..4"], [(17,)], "input 'x0' has size 17 in dim 0, wants 16*b"),
        ([["b"], ["b"]], ["b=1..9"], [(3,), (4,)], "input 'x1' has size 4 in dim 0, wants b = 3"),
        ([["b"], ["b + 1"]], ["b=1..9"], [(3,), (3,)], "input 'x1' has size 3 in dim 0, wants b + 1 = 4"),
        ([["b//2"]], ["b=4..9"], [(9,)], "input 'x0' has size 9 in dim 0, wants b//2 with b=4..9"),
    ],
)
def test_what_does_not_fit_is_named(dims, symbols, shapes, message):
    with pytest.raises(InputShape) as caught:
        binder(*dims, symbols=symbols).bind(tuple(shapes))
    assert caught.value.message == message
    assert "got shape [" in caught.value.reason


def test_a_disagreement_says_who_bound_the_symbol():
    with pytest.raises(InputShape) as caught:
        binder([4, "b"], ["b"], symbols=["b=1..9"]).bind(((4, 3), (4,)))
    assert "`b` is 3 by dim 1 of 'x0'" in caught.value.reason


def test_a_range_error_names_the_nearest_size():
    with pytest.raises(InputShape, match="the nearest size is 8;"):
        binder(["2*b"], symbols=["b=1..4"]).bind(((10,),))


def test_a_plain_symbol_is_preferred_to_a_derived_dim():
    with pytest.raises(InputShape) as caught:
        binder(["2*b"], ["b"], symbols=["b=1..9"]).bind(((5,), (2,)))
    assert caught.value.message == "input 'x0' has size 5 in dim 0, wants 2*b = 4"


def test_forms_without_an_inverse_are_searched():
    assert binder(["b // 2", "b % 2"], symbols=["b=1..9"]).bind(((3, 1),)) == {"b": 7}


def test_a_symbol_without_a_range_is_not_negative():
    with pytest.raises(InputShape):
        binder(["b + 2"]).bind(((1,),))
    assert binder(["b + 2"]).bind(((2,),)) == {"b": 0}


def test_many_shapes_stay_bounded_in_memory():
    bound = binder(["b"], symbols=["b=0.."])
    for size in range(3000):
        assert bound.bind(((size,),)) == {"b": size}
    assert bound._cached.cache_info().currsize <= 1024


def test_shapes_of_numpy_are_plain():
    assert binder(["b"], symbols=["b=0..4"]).bind((np.zeros(3).shape,)) == {"b": 3}
