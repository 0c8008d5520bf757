"""Orthogonal polynomials by their recurrences in the degree, as in ATen's `native/Math.h`.

The degree is a tensor, so that the recurrence is a loop up to the highest one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop_op  # the public one starts a compiler

from aotpipe.passes.decompositions.entries import Table, Value, empty, floating, promoted

aten = torch.ops.aten

Step = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""The polynomial of degree k + 1 from `k`, `x`, those of degrees k and k - 1."""


def _recurrence(x: Tensor, n: Tensor, first: Tensor, step: Step) -> Tensor:
    """The polynomial of each element's degree; of degree 0 it is 1, of degree 1 it is `first`."""
    if empty(x):
        return x.clone()

    def goes_on(k: Tensor, before: Tensor, last: Tensor, n: Tensor, x: Tensor) -> Tensor:
        return ((k < n) & ~last.isnan()).any()

    def body(k: Tensor, before: Tensor, last: Tensor, n: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        is_below = k < n
        following = step(k.to(x.dtype), x, last, before)
        return k + 1, torch.where(is_below, last, before), torch.where(is_below, following, last)

    start: Any = (torch.ones((), dtype=torch.int64, device=x.device), torch.ones_like(x), first.clone())
    found = while_loop_op(goes_on, body, start, (n, x.clone()))[2]
    return torch.where(n < 0, 0.0, torch.where(n == 0, 1.0, found))


def _chebyshev(k: Tensor, x: Tensor, last: Tensor, before: Tensor) -> Tensor:
    return (x + x) * last - before


def _hermite_h(k: Tensor, x: Tensor, last: Tensor, before: Tensor) -> Tensor:
    return (x + x) * last - (k + k) * before


def _hermite_he(k: Tensor, x: Tensor, last: Tensor, before: Tensor) -> Tensor:
    return x * last - k * before


def _laguerre(k: Tensor, x: Tensor, last: Tensor, before: Tensor) -> Tensor:
    return ((k + k + (1.0 - x)) * last - k * before) / (k + 1.0)


def _legendre(k: Tensor, x: Tensor, last: Tensor, before: Tensor) -> Tensor:
    return ((k + k + 1.0) * x * last - k * before) / (k + 1.0)


def chebyshev(x: Tensor, n: Tensor, *, kind: str, shifted: bool = False) -> Tensor:
    """Chebyshev's of a kind; between -1 and 1 a high degree is a ratio of a cosine's multiples."""
    x = x + x - 1.0 if shifted else x
    first = {"t": x, "u": x + x, "v": x + x - 1.0, "w": x + x + 1.0}[kind]
    limit = 6 if kind == "t" or shifted else 8
    limit = 4 if kind == "w" and shifted else limit
    is_high = (n > limit) & (x.abs() < 1.0)
    found = _recurrence(x, torch.where(is_high, n.clamp(max=1), n), first, _chebyshev)
    angle = torch.acos(torch.where(x.abs() < 1.0, x, 0.0))
    degree = n.to(x.dtype)
    by_angle = {
        "t": lambda: torch.cos(degree * angle),
        "u": lambda: torch.sin((degree + 1.0) * angle) / torch.sin(angle),
        "v": lambda: torch.cos((degree + 0.5) * angle) / torch.cos(angle / 2.0),
        "w": lambda: torch.sin((degree + 0.5) * angle) / torch.sin(angle / 2.0),
    }[kind]()
    found = torch.where(is_high, by_angle, found)
    one = torch.ones_like(x)
    at_one, at_minus_one = {
        "t": (one, one),
        "u": (degree + 1.0, degree + 1.0),
        "v": (one, degree + degree + 1.0),
        "w": (degree + degree + 1.0, one),
    }[kind]
    at_minus_one = torch.where(n % 2 == 0, at_minus_one, -at_minus_one)
    found = torch.where(x == 1.0, at_one, torch.where(x == -1.0, at_minus_one, found))
    return torch.where(n < 0, 0.0, found)


def hermite(x: Tensor, n: Tensor, *, step: Step, scale: float) -> Tensor:
    limit = 128 if x.dtype == torch.float32 else 512
    found = _recurrence(x, n.clamp(max=limit), x * scale, step)
    return torch.where(n > limit, math.nan, found)


def laguerre(x: Tensor, n: Tensor) -> Tensor:
    return _recurrence(x, torch.where(x == 0, n.clamp(max=0), n), 1.0 - x, _laguerre)


def legendre(x: Tensor, n: Tensor) -> Tensor:
    is_end = x.abs() == 1.0
    found = _recurrence(x, torch.where(is_end, n.clamp(max=1), n), x, _legendre)
    # At -1 the sign is that of the degree.
    return torch.where(is_end & (n > 0) & (n % 2 == 0), 1.0, found)


def _of_degrees(function: Callable[[Tensor, Tensor], Tensor], x: Value, n: Value) -> Any:
    value, degree = torch.broadcast_tensors(*map(floating, promoted(x, n)))
    # Eager's C++ makes the least integer of what is no number.
    is_number = degree.isfinite() & (degree.abs() < 2.0**62)
    return function(value, torch.where(is_number, degree, -1.0).to(torch.int64))


_FUNCTIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    **{f"chebyshev_polynomial_{kind}": partial(chebyshev, kind=kind) for kind in "tuvw"},
    **{
        f"shifted_chebyshev_polynomial_{kind}": partial(chebyshev, kind=kind, shifted=True) for kind in "tuvw"
    },
    "hermite_polynomial_h": partial(hermite, step=_hermite_h, scale=2.0),
    "hermite_polynomial_he": partial(hermite, step=_hermite_he, scale=1.0),
    "laguerre_polynomial_l": laguerre,
    "legendre_polynomial_p": legendre,
}

DECOMPOSITIONS: Table = {
    getattr(getattr(aten, f"special_{name}"), overload): partial(_of_degrees, function)
    for name, function in _FUNCTIONS.items()
    for overload in ("default", "x_scalar", "n_scalar")
}
