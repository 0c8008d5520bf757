import jax.numpy as jnp
import pytest
import sympy
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.functions import FloorDiv, IntTrueDiv, PythonMod, RoundToInt

from aotpipe.backends.xla.lowering import own_settings
from aotpipe.backends.xla.padding.sizes import Extents, Unpaddable, evaluate
from aotpipe.backends.xla.values import Sizes, UnknownSize
from aotpipe.passes.unbacked import DataSize

n, m, u = sympy.symbols("n m u", integer=True)


def extents(**sizes: int) -> Extents:
    bound = Sizes({sympy.Symbol(name, integer=True): sympy.Integer(size) for name, size in sizes.items()})
    return Extents(bound, {n: jnp.int32(5)}, {n: 2})


@pytest.mark.parametrize(
    ("expr", "bucket", "true"),
    [
        (2 * n + 1, 17, 11),
        (FloorDiv(n - 1, 2) + 1, 4, 3),
        (n / 2 + sympy.Rational(1, 2) * n, 8, 5),
        (sympy.Max(n, 6), 8, 6),
        (n * m, 24, 15),
        (n**2, 64, 25),
        (RoundToInt(IntTrueDiv(n, 2)), 4, 2),
    ],
)
def test_a_size_has_two_values(expr: sympy.Expr, bucket: int, true: int):
    own = extents(n=8, m=3)
    found = own._checked(expr)
    with own_settings():
        assert (own.bucket(found), int(own.true(found))) == (bucket, true)
    assert found.free_symbols == {n}


def test_a_size_that_may_be_larger_for_a_smaller_call_is_refused():
    with pytest.raises(Unpaddable, match="larger for a smaller call"):
        extents(n=8)._checked(PythonMod(-n, 16))
    with pytest.raises(Unpaddable):
        extents(n=8)._checked(20 - n)
    # Rounded up it grows, which is seen by trying.
    assert extents(n=8)._checked(n + PythonMod(-n, 4))


def test_a_size_that_nobody_knows_is_told():
    with pytest.raises(UnknownSize, match="u"):
        extents(n=8)._checked(n + u)
    with pytest.raises(UnknownSize, match="sin"):
        evaluate(sympy.sin(n), {n: 3})


def test_a_symbol_can_be_learnt():
    """Of a `nonzero`: its operand's elements are the most that there are."""
    own = extents(n=8)
    size = ShapeEnv().create_unbacked_symint()
    u = size.node.expr
    own.unknown = {u: DataSize(0, 2 * n)}
    with own.within():
        own.learn(size, jnp.int32(4))
        assert own.bucket(own.of(size)) == 16
        assert int(own.true(u + n)) == 9
    with pytest.raises(UnknownSize):
        own.of(size)


def test_a_size_without_a_bound_stays_unknown():
    own = extents(n=8)
    size = ShapeEnv().create_unbacked_symint()
    own.unknown = {size.node.expr: DataSize(0, None)}
    own.learn(size, jnp.int32(4))
    own.learn(3, jnp.int32(3))
    assert own.sizes.values.keys() == {n}
