"""Asserts of a program where Python's own arithmetic would raise, or would go on beyond 64 bits.

A whole number of Python's has no bounds, one of a program has 64 bits: where only a run knows the operands,
a sum, a product or a power is asserted to have room. A sum with a constant is not: no counter gets there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from aotpipe.canonicalize.trace import runtime_asserts, torch_functions
from aotpipe.canonicalize.values import host_scalars, trace

Test = Callable[[torch.Tensor], torch.Tensor]
_POWERS: Final = frozenset({"pow", "rpow"})
_REFLECTED: Final = frozenset({"rtruediv", "rdiv", "rfloordiv", "rmod", "rpow", "rlshift", "rrshift"})
_PRODUCTS: Final = frozenset({"mul", "rmul", "multiply"})
_SUMS: Final = frozenset({"add", "radd"})
_GROWING: Final = _PRODUCTS | _SUMS | frozenset({"sub", "rsub", "subtract"})
_MOST: Final = 2**63 - 1
_HALF: Final = 2**62
_BEYOND: Final = OverflowError("a whole number beyond 64 bits")
_FLOORING: Final = frozenset({"floordiv", "rfloordiv", "floor_divide"})
_SHIFTS: Final = frozenset({"lshift", "rshift", "rlshift", "rrshift"})
_PARTIAL: Final = (
    _POWERS
    | _SHIFTS
    | _REFLECTED
    | frozenset("truediv div divide true_divide floordiv floor_divide mod remainder fmod".split())
)
# Functions that raise for some matrices.
_FACTORING: Final = frozenset(
    f"{prefix}{name}"
    for prefix in ("", "linalg_")
    for name in ("cholesky inverse inv solve lu_factor eigh eigvalsh svd svdvals lstsq ldl_factor".split())
)
# What raises; NaN fails none of these tests, and gives NaN in Python, too.
_OUTSIDE: Final[Mapping[str, Test]] = {
    "sqrt": lambda x: x < 0,
    **dict.fromkeys(("log", "log2", "log10"), lambda x: x <= 0),
    "log1p": lambda x: x <= -1,
    **dict.fromkeys(("asin", "acos"), lambda x: x.abs() > 1),
    "acosh": lambda x: x < 1,
    "atanh": lambda x: x.abs() >= 1,
    **dict.fromkeys(("sin", "cos", "tan"), torch.isinf),
}
# From here on a float of Python's, which has 64 bits, has no room; a program's may become infinite before.
_TOO_LARGE: Final[Mapping[str, Test]] = {
    **dict.fromkeys(("exp", "expm1"), lambda x: x > 709.782712893384),
    "exp2": lambda x: x >= 1024,
    **dict.fromkeys(("sinh", "cosh"), lambda x: x.abs() > 710.4758600739439),
}


def require_domain(name: str, number: torch.Tensor) -> None:
    """Assert that a function of `math`, by the name of torch's, has a value for a number."""
    if (outside := _OUTSIDE.get(name)) is not None:
        runtime_asserts.require(outside(number), ValueError("math domain error"), holds=False)
    if (large := _TOO_LARGE.get(name)) is not None:
        overflows = large(number).logical_and(torch.isfinite(number))
        runtime_asserts.require(overflows, OverflowError("math range error"), holds=False)


def require_domain_of_two(name: str, left: torch.Tensor, right: torch.Tensor) -> None:
    """Assert that a function of `math` of two numbers, by the name of torch's, has a value for them."""
    if name == "fmod":
        outside = (right == 0).logical_and(torch.isnan(left).logical_not())
        outside = outside.logical_or(torch.isinf(left).logical_and(torch.isnan(right).logical_not()))
    elif name == "pow":
        is_fraction = (right != right.trunc()).logical_and(torch.isfinite(right))
        outside = (left == 0).logical_and(right < 0).logical_and(torch.isinf(right).logical_not())
        outside = outside.logical_or((left < 0).logical_and(torch.isfinite(left)).logical_and(is_fraction))
    else:
        return
    runtime_asserts.require(outside, ValueError("math domain error"), holds=False)


def require_whole(number: torch.Tensor) -> None:
    """Assert that `int` has a value for a number."""
    if number.dtype.is_floating_point:
        runtime_asserts.require(
            torch.isnan(number), ValueError("cannot convert float NaN to integer"), holds=False
        )
        error = OverflowError("cannot convert float infinity to integer")
        if runtime_asserts.is_caught(error):
            runtime_asserts.require(torch.isinf(number), error, holds=False)
        fits = (number >= -(2.0**63)).logical_and(number < 2.0**63).logical_or(torch.isnan(number))
        runtime_asserts.add_assert(fits, f"OverflowError: {error}, or a number beyond 64 bits")


def require_index(index: torch.Tensor, size: Any) -> None:
    """Assert that an integer is an index into so many elements, if a `try` has a handler for one that is not.

    Elsewhere, each index of a program is asserted where it is lowered.
    """
    error = IndexError(f"index is out of bounds for a dimension of size {size}")
    if runtime_asserts.is_caught(error):
        runtime_asserts.require((index >= -size).logical_and(index < size), error, holds=True)


def require_defined(function: Callable[..., Any], args: Sequence[Any]) -> None:
    """Assert that an operator has a value for two numbers, if both are Python's.

    Raises:
        ExportFailed: A power is an int or a float by its exponent, in a loop that may be unrolled.
    """
    name = host_scalars.base_name(function)
    if name in _FACTORING:
        runtime_asserts.refuse_caught(RuntimeError())
    if any(map(_is_integer, args)) and any(
        type(each) is int and not -_MOST - 1 <= each <= _MOST for each in args
    ):
        raise trace.refusal(
            "a constant has more than 64 bits", "keep whole numbers below 2**63, as by `% 2**32`"
        )
    if len(args) == 2 and name in _GROWING and all(map(_is_integer, args)):
        _require_room(name, *args)
    if name not in _PARTIAL or len(args) != 2 or not all(map(_is_number, args)):
        return
    left, right = args if name not in _REFLECTED else args[::-1]
    if name in _SHIFTS:
        _require_not(right < 0, ValueError("negative shift count"))
        if name.endswith("lshift"):
            _require_room_to_shift(*map(_as_int64, (left, right)))
        return
    if name not in _POWERS:
        _require_not(right == 0, ZeroDivisionError("division by zero"))
        least, negative = left == -(2**63), right == -1
        if name in _FLOORING and least is not False and negative is not False:
            # Python's integers go on beyond 64 bits, those of a program do not.
            _refuse_values(least & negative, OverflowError("a quotient of integers is 2**63"))
        return
    error = ZeroDivisionError("0.0 cannot be raised to a negative power")
    if isinstance(right, torch.Tensor) or right < 0:
        _require_not((left == 0) & (right < 0), error)
    if _is_whole(left) and _is_whole(right):
        if isinstance(right, torch.Tensor) and trace.current().may_unroll and not _is_small(left, right):
            # A negative power is a float in Python, a large one has no bounds: unrolled, the loop has both.
            raise trace.refusal("an int has a power that only a run knows", "give a float: `10.0 ** n`")
        _refuse_values(right < 0, ArithmeticError("a whole number is raised to a negative power"))
        _require_room_to_raise(left, right)
    elif not _is_whole(right):
        fraction = right != (right.trunc() if isinstance(right, torch.Tensor) else int(right))
        _refuse_values((left < 0) & fraction, ArithmeticError("a negative number is raised to a fraction"))


def _is_small(base: Any, exponent: torch.Tensor) -> bool:
    """Whether a power of a constant is known to be a whole number of 64 bits."""
    low, high = host_scalars.lower_bound(exponent), host_scalars.upper_bound(exponent)
    if not isinstance(base, int) or low is None or low < 0:
        return False
    return abs(base) < 2 or (high is not None and high < 64 and abs(base) ** high <= _MOST)


def _require_room(name: str, left: Any, right: Any) -> None:
    """Assert that a product, a sum or a difference of integers has room in 64 bits.

    The tests compare integers with constants: `passes.ranges` proves those of operands that have bounds.
    """
    if name not in _PRODUCTS:
        if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
            _require_at_most(left, _HALF - 1)
            _require_at_most(right, _HALF - 1)
        return
    constant, other = (left, right) if isinstance(left, int) else (right, left)
    if isinstance(constant, int):
        _require_at_most(other, _MOST // max(abs(constant), 1))
        return
    # In float32 the product is right but for some 2**-22 of it.
    one, other = (left, right) if isinstance(left, torch.Tensor) else (right, left)
    estimate = other * one.to(torch.float32)
    _require_at_most(estimate.clamp(-_HALF, _HALF).to(torch.int64), _HALF - 1)


def _require_room_to_raise(base: Any, exponent: Any) -> None:
    """Assert that a power of integers, none of them negative, has room in 64 bits."""
    if isinstance(exponent, int):
        _require_at_most(base, _root(exponent) if exponent > 1 else _MOST)
    elif not isinstance(base, int):
        estimate = base.to(torch.float32).abs() ** exponent.to(torch.float32)
        _require_at_most(estimate.clamp(-_HALF, _HALF).to(torch.int64), _HALF - 1)
    elif abs(base) > 1:
        _require_at_most(exponent, max(each for each in range(63) if abs(base) ** each <= _MOST))


def _root(exponent: int) -> int:
    """The highest whole number whose power has room in 64 bits."""
    root = int(_MOST ** (1 / exponent))
    return root if root**exponent <= _MOST else root - 1


def _require_at_most(number: torch.Tensor, most: int) -> None:
    """Assert that an integer is at most so far from zero."""
    if most < _MOST:
        fits = (number >= -most).logical_and(number <= most)
        runtime_asserts.add_assert(fits, f"{type(_BEYOND).__name__}: {_BEYOND}")


def _require_room_to_shift(number: torch.Tensor, places: torch.Tensor) -> None:
    """Assert that a number has room in 64 bits when it is shifted to the left by so many places."""
    moved = torch.bitwise_left_shift(number, places.clamp(0, 63))
    is_kept = (torch.bitwise_right_shift(moved, places.clamp(0, 63)) == number).logical_and(places < 64)
    _refuse_values(is_kept.logical_or(number == 0).logical_not(), _BEYOND)


def _as_int64(value: Any) -> torch.Tensor:
    return value.to(torch.int64) if isinstance(value, torch.Tensor) else host_scalars.as_int64(int(value))


def _refuse_values(test: Any, error: Exception) -> None:
    """Assert that a test is false, where Python has a value that a program has not: no handler is for it."""
    if isinstance(test, torch.Tensor):
        said = f"{type(error).__name__}: {error}"
        runtime_asserts.add_assert(torch_functions.predicate(test).logical_not(), said)
    elif test:
        runtime_asserts.refuse_caught(error)
        raise runtime_asserts.raised(lambda: error)


def _require_not(test: Any, error: Exception) -> None:
    if isinstance(test, torch.Tensor):
        runtime_asserts.require(test, error, holds=False)
    elif test:
        raise runtime_asserts.raised(lambda: error)


def _is_whole(value: Any) -> bool:
    return not value.dtype.is_floating_point if isinstance(value, torch.Tensor) else isinstance(value, int)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or host_scalars.is_host_scalar(value)


def _is_integer(value: Any) -> bool:
    """Whether a value is an integer of Python's, or a size that varies; a bool is not."""
    if isinstance(value, torch.Tensor):
        return host_scalars.is_host_scalar(value) and value.dtype in (torch.int32, torch.int64)
    return isinstance(value, int | torch.SymInt) and not isinstance(value, bool)
