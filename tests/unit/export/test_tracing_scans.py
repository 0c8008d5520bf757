"""A tensor that begins a scan, and is something else in it too, is two values there."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.scan import scan

from tests.sweep import slow
from tests.unit.canonicalize.trace.agree import check


def begins_two_carries(x):
    zeros = torch.zeros(2)
    return scan(lambda c, y: ([c[0] + y, c[1] - y], c[0] * c[1]), [zeros, zeros], x)


def is_read_by_the_step(x):
    first = x[0]
    return scan(lambda c, y: (c + y + first, c * first), first, x)


def is_what_is_scanned(x):
    square = x[:2, :2]
    return scan(lambda c, y: (c * 0.5 + y, c.sum(0) + y), square, square)


def is_an_input(carry, x):
    return scan(lambda c, y: ([c[0] + y, c[1] * y + carry], c[0] * c[1]), [carry, carry], x)


@pytest.mark.parametrize("model", [slow(begins_two_carries), is_read_by_the_step, slow(is_what_is_scanned)])
def test_a_carry_is_its_own(model):
    x = torch.linspace(-1, 2, 6).reshape(3, 2)
    check(model, (x,), (x * 2,))


def test_an_input_begins_two_carries():
    x = torch.linspace(-1, 2, 6).reshape(3, 2)
    check(is_an_input, (x[1], x), (x[0] * 2, x))
