"""One of two values, where the graph decides which: conditional expressions and values that may be None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from aotpipe.canonicalize.trace import decisions, regions
from aotpipe.canonicalize.trace.torch_functions import is_staged
from aotpipe.canonicalize.values import optional_values
from aotpipe.canonicalize.values.abstract_values import UNDEFINED, Variables
from aotpipe.canonicalize.values.optional_values import OptionalValue

T = TypeVar("T")


def choose(test: object, then: Callable[[], T], other: Callable[[], T]) -> T:
    """`then() if test else other()`."""
    if not is_staged(test):
        return then() if test else other()
    decisions.expression("choice")
    return _branch(test, then, other, "the expression")


def either(optional: OptionalValue, then: Callable[[], T], other: Callable[[], T]) -> T:
    """`then()` where a value is there, else `other()`."""
    if optional.is_present:
        return then()
    return _branch(optional_values.presence(optional, wanted=True), then, other, "the result")


def _branch(test: object, then: Callable[[], T], other: Callable[[], T], name: str) -> T:
    chosen: list[Any] = [UNDEFINED]

    def take(value: Any) -> None:
        chosen[0] = value

    variables = Variables(lambda: tuple(chosen), lambda values: take(values[0]), (name,), tuple)
    regions.branch(test, lambda: take(then()), lambda: take(other()), variables)
    value: T = chosen[0]
    return value
