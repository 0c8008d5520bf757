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

from aotpipe.canonicalize.operators import dynamic_list_methods, logic, unbacked_items
from aotpipe.canonicalize.operators.generated import Generated, grouped
from aotpipe.canonicalize.values import dynamic_list, trace
from aotpipe.canonicalize.values.trace import is_on, refusal

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


def _dropwhile(function: Any, items: Any) -> Any:
    """`itertools.dropwhile(function, items)`, where it is a list."""
    going: list[Any] = [True]

    def is_taken(item: Any) -> Any:
        going[0] = logic.and_(partial(going.__getitem__, 0), partial(_call, function, item), truth=True)
        return logic.not_(going[0])

    return _kept(items, is_taken)


def _filterfalse(function: Any, items: Any) -> Any:
    """`itertools.filterfalse(function, items)`, where it is a list."""
    return _kept(items, lambda item: logic.not_(item if function is None else _call(function, item)))


def _starmap(function: Any, items: Iterable[Any]) -> Iterator[Any]:
    """`itertools.starmap(function, items)`."""
    return (_call(function, *each) for each in items)


def _chain(*parts: Any) -> Any:
    """`itertools.chain(*parts)`; a list, where a tensor decides on the length of a part."""
    if not any(dynamic_list.is_dynamic_list(each) or isinstance(each, Generated) for each in parts):
        return itertools.chain(*parts)
    joined: list[Any] = []
    for each in parts:
        dynamic_list_methods.extend(joined, trace.operators().call(list, each))
    return joined


def _islice(items: Any, *ends: Any) -> Any:
    """`itertools.islice(items, *ends)`; of a generator that decides on tensors, its first so many values."""
    if isinstance(items, Generated):
        if len(ends) == 1 and isinstance(ends[0], int):
            return items.first(ends[0])
        items = trace.operators().call(list, items)
    if dynamic_list.is_dynamic_list(items):
        return dynamic_list_methods.opened(items)[slice(*ends)]
    return itertools.islice(items, *ends)


def _groupby(items: Any, key: Any = None) -> Iterator[Any]:
    """`itertools.groupby(items, key)`."""
    if not is_on() or not isinstance(items, list | tuple | range | torch.Tensor):
        return itertools.groupby(items, key)
    if unbacked_items.of(items) is not None:
        raise _of_unknown_length("groupby")
    return grouped(items, key)


def _kept(items: Any, is_kept: Callable[[Any], Any]) -> Any:
    def elementwise(found: Iterable[Any]) -> list[unbacked_items.Pair]:
        return [(partial(is_kept, each), partial(_same, each)) for each in found]

    return unbacked_items.comprehended(items, list, elementwise, tested=True)


def _same(value: Any) -> Any:
    return value


def _of_unknown_length(name: str) -> Exception:
    said = f"`{name}` is called with a list whose length a tensor decides"
    return refusal(said, "loop over it with `for`, or stack it first", "list-grows")


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
        if not (is_on() and is_sequence):
            return plain(function, items, *rest)
        if staged in (_takewhile, _dropwhile) and not is_known:
            raise _of_unknown_length(plain.__name__)
        return staged(function, items, *rest)

    return either


CALLS: Final[dict[Any, Function]] = {
    map: _map,
    filter: _of_sequences(filter, _filter),
    functools.reduce: _reduce,
    itertools.takewhile: _of_sequences(itertools.takewhile, _takewhile),
    itertools.dropwhile: _of_sequences(itertools.dropwhile, _dropwhile),
    itertools.filterfalse: _of_sequences(itertools.filterfalse, _filterfalse),
    itertools.starmap: _starmap,
    itertools.chain: _chain,
    itertools.islice: _islice,
    itertools.groupby: _groupby,
    itertools.accumulate: _accumulate,
}
