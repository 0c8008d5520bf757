import jax.numpy as jnp
import numpy as np
import sympy

from aotpipe.backends.xla.padding.rules import Arena, Padded, joined
from aotpipe.backends.xla.padding.sizes import Extents
from aotpipe.backends.xla.values import Sizes

n, m = sympy.symbols("n m", integer=True)
three, four = sympy.Integer(3), sympy.Integer(4)


def arena() -> Arena:
    bound = Sizes({n: sympy.Integer(4), m: sympy.Integer(5)})
    return Arena(Extents(bound, {n: jnp.int32(2), m: jnp.int32(3)}, {n: 1, m: 1}))


def value(*shape: object) -> Padded:
    sizes = [int(sympy.sympify(size).subs({n: 4, m: 5})) for size in shape]
    return Padded(jnp.arange(np.prod(sizes)).reshape(sizes), tuple((sympy.sympify(size),) for size in shape))


def counting(padded: Padded) -> np.ndarray:
    mask = np.asarray(arena().mask(padded, range(padded.ndim)))
    return np.asarray(padded.array)[mask]


def test_fixed_factors_join_what_stands_before_them():
    assert joined((sympy.Integer(1), n, three)) == (3 * n,)
    assert joined((three, n, four)) == (three, 4 * n)
    assert joined(()) == (sympy.Integer(1),)


def test_joined_axes_keep_what_counts_where_it_is():
    x = value(n, m, 3)
    flat = arena().reshape(x, [n * m, three])
    assert flat.axes == ((n, m), (three,))
    assert counting(flat).tolist() == counting(x).tolist()
    assert flat.array.ravel().tolist() == x.array.ravel().tolist()
    back = arena().reshape(flat, [n, m, three])
    assert back.axes == x.axes


def test_a_plain_axis_has_what_counts_in_front():
    x = value(n, m)
    flat = arena().plain(arena().reshape(x, [n * m]))
    assert flat.axes == ((n * m,),)
    assert flat.array[:6].tolist() == counting(x).tolist()


def test_a_reshape_that_mixes_axes_moves_elements():
    x = value(n, 6)
    moved = arena().reshape(x, [three, 2 * n])
    assert moved.axes == ((three,), (2 * n,))
    assert counting(moved).tolist() == counting(x).tolist()


def test_operands_agree_on_their_axes():
    x, y = value(n, m), value(n * m)
    flat = arena().reshape(x, [n * m])
    (left, right), axes = arena().aligned([flat, y], 1)
    assert axes == ((n * m,),)
    assert left.axes == right.axes
    (left, right), axes = arena().aligned([flat, value(1)], 1)
    assert axes == ((n, m),)


def test_what_does_not_count_is_filled():
    x = value(n, m)
    filled = np.asarray(arena().filled(x, (0,), -1).array)
    assert (filled[2:] == -1).all()
    assert filled[:2].tolist() == np.asarray(x.array)[:2].tolist()
