"""`filter`, `map`, `functools.reduce` and kin, of functions that decide on tensors.

Python's own call a function in C, and ask there for the truth of what it gives.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import torch

from aotpipe.canonicalize.operators import logic, unbacked_items
from aotpipe.canonicalize.values import trace
from aotpipe.canonicalize.values.trace import is_on

Function = Callable[..., Any]
_NONE: Final = object()


def _call(function: Any, *args: Any) -> Any:
    return trace.operators().call(function, *args)


def _map(function: Any, *items: Any) -> Iterable[Any]:
    """`map(function, *items)`, as lazily, but for a list whose length a tensor decides."""
    if is_on() and len(items) == 1 and unbacked_items.of(items[0]) is not None:
        return unbacked_items.mapped(function, items[0])
    return (_call(function, *each) for each in zip(*items, strict=False))


def _filter(function: Any, items: Any) -> Any:
    """`filter(function, items)`, where it is a list."""
    return _kept(items, lambda item: item if function is None else _call(function, item))


def _takewhile(function: Any, items: Any) -> Any:
    """`itertools.takewhile(function, items)`, where it is a list."""
    going: list[Any] = [True]

    def is_taken(item: Any) -> Any:
        going[0] = logic.and_(partial(going.__getitem__, 0), partial(_call, function, item), truth=True)
        return going[0]

    return _kept(items, is_taken)


def _kept(items: Any, is_kept: Callable[[Any], Any]) -> Any:
    def elementwise(found: Iterable[Any]) -> list[unbacked_items.Pair]:
        return [(partial(is_kept, each), partial(_same, each)) for each in found]

    return unbacked_items.comprehended(items, list, elementwise, tested=True)


def _same(value: Any) -> Any:
    return value


def _accumulate(items: Iterable[Any], function: Any = operator.add, *, initial: Any = None) -> Iterator[Any]:
    """`itertools.accumulate(items, function, initial=initial)`."""
    total = _NONE if initial is None else initial
    if total is not _NONE:
        yield total
    for each in items:
        total = each if total is _NONE else _call(function or operator.add, total, each)
        yield total


def _reduce(function: Any, items: Iterable[Any], *initial: Any) -> Any:
    """`functools.reduce(function, items, *initial)`."""
    return functools.reduce(partial(_call, function), items, *initial)


def _of_sequences(plain: Function, staged: Function) -> Function:
    """The staged function of items that a trace can write out, and come to more than once."""

    @functools.wraps(staged)
    def either(function: Any, items: Any, *rest: Any) -> Any:
        is_known = unbacked_items.of(items) is None
        is_sequence = isinstance(items, list | tuple | range | torch.Tensor) or not is_known
        if not (is_on() and is_sequence) or (staged is _takewhile and not is_known):
            return plain(function, items, *rest)
        return staged(function, items, *rest)

    return either


CALLS: Final[dict[Any, Function]] = {
    map: _map,
    filter: _of_sequences(filter, _filter),
    functools.reduce: _reduce,
    itertools.takewhile: _of_sequences(itertools.takewhile, _takewhile),
    itertools.accumulate: _accumulate,
}
