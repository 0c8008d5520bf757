"""Functions of whole numbers that have no op: `math.gcd`, `math.comb`, `pow(base, exponent, modulus)`...

Each is a loop in the graph over numbers of 64 bits; where Python's integers go on beyond these, an assert of
the program fails. Raises what Python raises for numbers that a function has no value for.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Final

import torch

from aotpipe.canonicalize.trace import regions, runtime_asserts
from aotpipe.canonicalize.trace.torch_functions import as_tensor, is_traced, predicate
from aotpipe.canonicalize.values import host_scalars
from aotpipe.canonicalize.values.abstract_values import Variables
from aotpipe.canonicalize.values.trace import refusal

Function = Callable[..., Any]
_BEYOND: Final = "OverflowError: a whole number beyond 64 bits"
# The product of two numbers below it has room in 64 bits.
_MOST_MODULUS: Final = math.isqrt(2**63 - 1)
_FACTORIALS: Final = tuple(math.factorial(n) for n in range(21))


def _whole(value: Any) -> Any:
    """A number as an int64, as Python's `operator.index` takes it.

    Raises:
        TypeError: It is a float.
    """
    if not is_traced(value):
        return host_scalars.as_host_scalar(torch.full((), int(value.__index__()), dtype=torch.int64))
    number = host_scalars.item(as_tensor(value))
    if number.dtype.is_floating_point or number.dtype.is_complex:
        said = "'float' object cannot be interpreted as an integer"
        raise runtime_asserts.raised(lambda: TypeError(said))
    return host_scalars.as_host_scalar(number.to(torch.int64, copy=True))


def _while(test: Callable[..., Any], step: Callable[..., tuple[Any, ...]], *begun: Any) -> list[Any]:
    """The numbers that are left of `while test(*numbers): numbers = step(*numbers)`."""
    held = list(begun)

    def body() -> None:
        held[:] = step(*held)

    names = (f"__aotpipe_number_{at}" for at in range(len(held)))
    regions.loop(lambda: test(*held), body, Variables.of_list(held, *names))
    return held


def _number(value: int) -> torch.Tensor:
    return host_scalars.as_host_scalar(torch.full((), value, dtype=torch.int64))


def _require(test: Any, error: Exception) -> None:
    runtime_asserts.require(predicate(test), error, holds=True)


def _or_one(number: torch.Tensor) -> torch.Tensor:
    """A number, or one in the place of zero, by which nothing is divided then."""
    return host_scalars.as_host_scalar(torch.where(number == 0, 1, number))


def _gcd_of_two(left: Any, right: Any) -> Any:
    left, right = _whole(left), _whole(right)
    found, _ = _while(lambda _, b: b != 0, lambda a, b: (b, torch.remainder(a, _or_one(b))), left, right)
    found = abs(found)
    runtime_asserts.add_assert(predicate(found >= 0), _BEYOND)
    return found


def _gcd(*values: Any) -> Any:
    return functools.reduce(_gcd_of_two, values, 0)


def _lcm_of_two(left: Any, right: Any) -> Any:
    left, right = _whole(left), _whole(right)
    return abs(left // _or_one(_gcd_of_two(left, right)) * right)


def _lcm(*values: Any) -> Any:
    return functools.reduce(_lcm_of_two, values, 1)


def _comb(n: Any, k: Any) -> Any:
    n, k = _whole(n), _whole(k)
    _require(n >= 0, ValueError("n must be a non-negative integer"))
    _require(k >= 0, ValueError("k must be a non-negative integer"))
    least = host_scalars.as_host_scalar(torch.minimum(k, n - k))

    def step(i: Any, found: Any) -> tuple[Any, Any]:
        # `found * (n - least + i) / i` without a product that is larger than it.
        times, rest = found // i, found % i
        return i + 1, times * (n - least + i) + rest * (n - least + i) // i

    # Of more than there are, no trip is taken: there is no way to choose them.
    _, found = _while(lambda i, _: i <= least, step, _number(1), _number(1))
    return host_scalars.as_host_scalar(torch.where(k > n, 0, found))


def _perm(n: Any, k: Any = None) -> Any:
    if k is None:
        return _factorial(n, "n must be a non-negative integer")
    n, k = _whole(n), _whole(k)
    _require(n >= 0, ValueError("n must be a non-negative integer"))
    _require(k >= 0, ValueError("k must be a non-negative integer"))
    least = host_scalars.as_host_scalar(torch.where(k > n, 0, k))
    begun = _number(0), _number(1)
    _, found = _while(lambda i, _: i < least, lambda i, found: (i + 1, found * (n - i)), *begun)
    return host_scalars.as_host_scalar(torch.where(k > n, 0, found))


def _factorial(n: Any, said: str = "factorial() not defined for negative values") -> Any:
    n = _whole(n)
    _require(n >= 0, ValueError(said))
    runtime_asserts.add_assert(predicate(n < len(_FACTORIALS)), _BEYOND)
    place = n.clamp(0, len(_FACTORIALS) - 1).reshape(1)
    return host_scalars.as_host_scalar(torch.tensor(_FACTORIALS).index_select(0, place).reshape(()))


def _isqrt(n: Any) -> Any:
    n = _whole(n)
    _require(n >= 0, ValueError("isqrt() argument must be nonnegative"))

    def step(_: Any, y: Any) -> tuple[Any, Any]:
        return y, (y + n // _or_one(y)) // 2  # Newton's, from above

    found, _ = _while(lambda x, y: y < x, step, n, n // 2 + n % 2)
    return found


def _inverse(base: Any, modulus: Any) -> tuple[Any, Any]:
    """The greatest common divisor with a modulus, and what it is of the base (Euclid, extended)."""

    def step(r: Any, next_r: Any, s: Any, next_s: Any) -> tuple[Any, ...]:
        times = r // _or_one(next_r)
        return next_r, r - times * next_r, next_s, s - times * next_s

    found = _while(lambda _, next_r, *__: next_r != 0, step, base, modulus, _number(1), _number(0))
    return abs(found[0]), found[2] * torch.where(found[0] < 0, -1, 1)


def power(base: Any, exponent: Any, modulus: Any = None) -> Any:
    """`pow(base, exponent, modulus)`.

    Raises:
        ExportFailed: The modulus is a constant of which a product of two remainders has no room in 64 bits.
        TypeError: One is a float, or a tensor.
    """
    if modulus is None:
        return base**exponent
    if not is_traced(modulus) and abs(modulus) > _MOST_MODULUS:
        raise refusal(
            "`pow` has a modulus of which the square has more than 64 bits",
            f"take one of at most {_MOST_MODULUS}",
        )
    if any(
        isinstance(each, torch.Tensor) and not host_scalars.is_host_scalar(each) for each in (base, exponent)
    ):
        raise runtime_asserts.raised(lambda: TypeError("pow() of a tensor takes no modulus"))
    is_positive = isinstance(exponent, int) and exponent >= 0
    base, exponent, modulus = _whole(base), _whole(exponent), _whole(modulus)
    _require(modulus != 0, ValueError("pow() 3rd argument cannot be 0"))
    runtime_asserts.add_assert(predicate(abs(modulus) <= _MOST_MODULUS), _BEYOND)
    divisor = _or_one(modulus)
    base = base % divisor
    if not is_positive:
        # Of a positive exponent, the inverse is that of 1.
        is_inverse = exponent < 0
        common, inverse = _inverse(torch.where(is_inverse, base, 1), divisor)
        _require((common == 1) | ~is_inverse, ValueError("base is not invertible for the given modulus"))
        base = torch.where(is_inverse, inverse, base) % divisor
        exponent = abs(exponent)

    def step(left: Any, square: Any, found: Any) -> tuple[Any, ...]:
        taken = torch.where(left % 2 == 1, found * square % divisor, found)
        return left // 2, square * square % divisor, taken

    begun = exponent, base, _number(1) % divisor
    return _while(lambda left, *_: left > 0, step, *begun)[2]


CALLS: Final[dict[Any, Function]] = {
    math.gcd: _gcd,
    math.lcm: _lcm,
    math.comb: _comb,
    math.perm: _perm,
    math.factorial: _factorial,
    math.isqrt: _isqrt,
    pow: power,
}
