"""Functions of whole numbers that loops compute: what Python gives, and raises."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from aotpipe.errors import ExportFailed
from tests.unit.canonicalize.trace.agree import check

T = torch.tensor
PAIRS = tuple(
    (T(a), T(b))
    for a, b in ((12, 18), (0, 5), (-21, 14), (7, 0), (0, 0), (61, 30), (5, 9), (1, -3), (30, 30), (62, 31))
)


def divisors(a, b):
    n = int(a)
    return math.gcd(n, int(b)), math.gcd(n, 8, b.item()), math.gcd(n), math.lcm(n, b.item()), math.lcm(4, n)


def reduced(a, b):
    """A loop of the model's, and the function in it."""
    n, d, steps = int(a), int(b), 0
    while (g := math.gcd(n, d)) > 1 and steps < 4:
        n, d, steps = n // g, d // g, steps + 1
    if n > d:
        return math.gcd(n, steps + 2), n, d
    return math.gcd(d, 6), n, d


def chosen(a, b):
    n, k = int(a), int(b)
    return math.comb(n, k), math.comb(n, 2), math.perm(n, min(k, 3))


def caught(a, b):
    try:
        return math.comb(int(a), int(b)), 0
    except ValueError:
        return -1, 1


def powers(a, b):
    n, e = int(a), int(b)
    if e >= 0:
        return pow(n, e, 97), pow(3, e, 1000003), pow(n, 5, 1), pow(n, 3, -7)
    return pow(n, 2, 11), pow(2, e, 9), 0, 0


def of_a_modulus(a, b):
    return pow(7, 20, int(b)), pow(int(a), -1, 97), pow(3, int(a), 2**31 - 1)


def an_inverse_or_none(a, b):
    try:
        return pow(int(a), -1, int(b))
    except ValueError:
        return 0


def roots(a, b):
    return math.isqrt(int(a)), math.isqrt(int(b) * int(b)), math.isqrt(2**40 + int(a))


@pytest.mark.parametrize(
    "model",
    [divisors, reduced, chosen, caught, powers, of_a_modulus, an_inverse_or_none, roots],
    ids=lambda model: model.__name__,
)
def test_functions_of_whole_numbers(model: Any):
    check(model, *PAIRS)


def factorials(x):
    n = int(x)
    return math.factorial(n), math.perm(n) + 1


def test_factorials_have_room_to_twenty():
    check(factorials, *((T(n),) for n in (3, 0, 20, -1)))
    with pytest.raises(AssertionError):  # Python's goes on
        check(factorials, (T(3),), (T(21),))


def test_a_number_of_more_than_64_bits_is_an_assert():
    with pytest.raises(AssertionError):
        check(chosen, (T(6), T(2)), (T(80), T(40)))


def fractions(x):
    return math.gcd(x.item(), 4)


def test_a_fraction_has_no_divisors():
    with pytest.raises(Exception, match="cannot be interpreted as an integer"):
        check(fractions, (T(2.0),))


def of_a_tensor(x):
    return pow(x, 2, 5)


def test_a_tensor_has_no_power_with_a_modulus():
    with pytest.raises(Exception, match="pow"):
        check(of_a_tensor, (T(3),))


def large(x):
    return pow(int(x), 5, 2**61 - 1)


def test_a_modulus_whose_square_has_no_room_is_refused():
    with pytest.raises(ExportFailed, match="the square has more than 64 bits"):
        check(large, (T(3),))
