"""What rewritten code calls: on Python values Python's own meaning, on traced tensors one op of a graph.

`staging()` says that a graph is being traced. Outside of it every operator is Python's own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from aotpipe.canonicalize.python import aliases, effects, regions
from aotpipe.canonicalize.python.values import UNDEFINED, Undefined, Variables, is_number, numbers_stay

T = TypeVar("T")
Values = tuple[Any, ...]
Get = Callable[[], Values]
Set = Callable[[Values], None]

Watched = Callable[[], Sequence[tuple[str, object]]]

_staging = False


@contextmanager
def staging(module: torch.nn.Module) -> Iterator[None]:
    """Put what depends on traced tensors into the graph, while a module is traced."""
    global _staging
    before, _staging = _staging, True
    try:
        with effects.watching(module), aliases.followed(), numbers_stay(), _Writes():
            yield
    finally:
        _staging = before


class _Writes(TorchFunctionMode):
    """Refuses writes in place that the graph would lose; those inside of regions are seen there."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        target = aliases.written(func, args, kwargs or {})
        if target is not None:
            regions.refuse_lost(target)
        return func(*args, **(kwargs or {}))


def is_staged(value: object) -> bool:
    """Whether a value is known to a run of the graph only."""
    return _staging and regions.is_traced(value)


def held(read: Callable[[], T]) -> T | Undefined:
    """A variable's value, or a mark where it has none yet."""
    try:
        return read()
    except (NameError, AttributeError):
        return UNDEFINED


def if_(
    test: object,
    then: Callable[[], None],
    other: Callable[[], None],
    get: Get,
    set_: Set,
    names: Sequence[str],
    watched: Watched,
) -> None:
    """`if test: then() else: other()`."""
    if is_staged(test):
        regions.branch(test, then, other, Variables(get, set_, names, watched))
    elif test:
        then()
    else:
        other()


def while_(
    test: Callable[[], object],
    body: Callable[[], None],
    get: Get,
    set_: Set,
    names: Sequence[str],
    watched: Watched,
) -> None:
    """`while test(): body()`; trips whose test is a Python value are written out."""
    while True:
        going = test()
        if is_staged(going):
            regions.loop(test, body, Variables(get, set_, names, watched))
            return
        if not going:
            return
        body()


def for_(
    items: Iterable[Any],
    body: Callable[[Any], None],
    stopped: Callable[[], object],
    get: Get,
    set_: Set,
    names: Sequence[str],
    watched: Watched,
) -> None:
    """`for item in items: body(item)`, until `stopped`; trips over Python's items are written out."""
    variables = Variables(get, set_, names, watched)
    if isinstance(items, regions.TensorRange):
        regions.counted(items, body, stopped, variables)
        return
    stop: Any = False
    for item in items:
        if is_staged(stop):
            regions.branch(stop, _nothing, partial(body, item), variables)
        else:
            body(item)
        stop = stopped()
        if not is_staged(stop) and stop:
            return


def _nothing() -> None:
    pass


def range_(kind: Callable[..., Any], *bounds: Any) -> Any:
    """`range(...)`, also of a traced tensor."""
    if kind is range and any(map(is_staged, bounds)):
        return regions.TensorRange.of(bounds)
    return kind(*bounds)


def and_(*operands: Callable[[], Any]) -> Any:
    """`a and b and ...`, each computed only where it is reached."""
    value = operands[0]()
    for operand in operands[1:]:
        if is_staged(value):
            value = regions.conjunction(value, operand())
        elif not value:
            return value
        else:
            value = operand()
    return value


def or_(*operands: Callable[[], Any]) -> Any:
    """`a or b or ...`."""
    value = operands[0]()
    for operand in operands[1:]:
        if is_staged(value):
            value = regions.disjunction(value, operand())
        elif value:
            return value
        else:
            value = operand()
    return value


def not_(value: Any) -> Any:
    """`not value`."""
    return regions.predicate(value).logical_not() if is_staged(value) else not value


def compare(first: Callable[[], Any], *rest: Callable[..., Any]) -> Any:
    """`a < b < c`: by turns the test of two values and the next value."""
    left = first()
    result: Any = True
    for test, following in zip(rest[::2], rest[1::2], strict=True):
        right = following()
        found = test(left, right)
        if is_staged(result):
            result = regions.conjunction(result, found)
        else:
            result = found
            if not is_staged(found) and not found:
                return found
        left = right
    return result


def choose(test: object, then: Callable[[], T], other: Callable[[], T]) -> T:
    """`then() if test else other()`."""
    if not is_staged(test):
        return then() if test else other()
    chosen: list[Any] = [UNDEFINED]

    def take(value: Any) -> None:
        chosen[0] = value

    variables = Variables(lambda: tuple(chosen), lambda values: take(values[0]), ("the expression",), tuple)
    regions.branch(test, lambda: take(then()), lambda: take(other()), variables)
    value: T = chosen[0]
    return value


def require(test: object, text: str, message: Callable[[], object] | None = None) -> None:
    """`assert test, message()`; `text` is the test's own."""
    if is_staged(test):
        said = text if message is None else str(message())
        torch._assert_async(regions.predicate(test), said)  # noqa: SLF001  # what torch.export keeps
    elif not test:
        raise AssertionError(*(() if message is None else (message(),)))


def augmented(name: str, left: Any, right: Any) -> Any:
    """`left += right` and its kin: the value that is assigned."""
    if _staging and is_number(left):
        return _PLAIN[name](left, right)
    return _IN_PLACE[name](left, right)


_IN_PLACE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "Add": operator.iadd,
    "Sub": operator.isub,
    "Mult": operator.imul,
    "MatMult": operator.imatmul,
    "Div": operator.itruediv,
    "FloorDiv": operator.ifloordiv,
    "Mod": operator.imod,
    "Pow": operator.ipow,
    "LShift": operator.ilshift,
    "RShift": operator.irshift,
    "BitOr": operator.ior,
    "BitXor": operator.ixor,
    "BitAnd": operator.iand,
}
_PLAIN: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "MatMult": operator.matmul,
    "Div": operator.truediv,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "Pow": operator.pow,
    "LShift": operator.lshift,
    "RShift": operator.rshift,
    "BitOr": operator.or_,
    "BitXor": operator.xor,
    "BitAnd": operator.and_,
}
