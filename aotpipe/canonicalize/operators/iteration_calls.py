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
from aotpipe.canonicalize.operators.iterators import Cursor
from aotpipe.canonicalize.operators.unbacked_items import UnbackedItems
from aotpipe.canonicalize.trace import runtime_asserts
from aotpipe.canonicalize.values import dynamic_list, host_scalars, trace
from aotpipe.canonicalize.values.abstract_values import Variables
from aotpipe.canonicalize.values.trace import is_on, refusal

Function = Callable[..., Any]
_NONE: Final = object()


def _call(function: Any, *args: Any) -> Any:
    return trace.operators().call(function, *args)


def _map(function: Any, *items: Any) -> Iterable[Any]:
    """`map(function, *items)`, as lazily, but for a list whose length a tensor decides."""
    if is_on() and any(unbacked_items.of(each) is not None for each in items):
        return _starmap(function, unbacked_items.zipped(*items))
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
    if is_on() and unbacked_items.of(items) is not None:
        return Cursor(unbacked_items.mapped(lambda each: _call(function, *each), items))
    return (_call(function, *each) for each in items)


def _chain(*parts: Any) -> Any:
    """`itertools.chain(*parts)`; a list, where a tensor decides on the length of a part."""
    if not any(map(_varies_in_length, parts)):
        return itertools.chain(*parts)
    joined: list[Any] = []
    for each in parts:
        dynamic_list_methods.extend(joined, trace.operators().call(list, each))
    return Cursor(joined)


def _varies_in_length(part: Any) -> bool:
    return isinstance(part, Generated) or (is_on() and unbacked_items.of(part) is not None)


def _islice(items: Any, *ends: Any) -> Any:
    """`itertools.islice(items, *ends)`; of a generator that decides on tensors, its first so many values."""
    if isinstance(items, Generated):
        if len(ends) == 1 and isinstance(ends[0], int):
            return items.first(ends[0])
        items = trace.operators().call(list, items)
    if dynamic_list.is_dynamic_list(items):
        return Cursor(dynamic_list_methods.opened(items)[slice(*ends)])
    if isinstance(items, Cursor) and items.is_dynamic:
        if len(ends) == 1 and ends[0] is not None:
            return items.lend(*ends)
        return _islice(items.taken(), *ends)
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

    return Cursor(unbacked_items.comprehended(items, list, elementwise, tested=True))


def _same(value: Any) -> Any:
    return value


def _of_unknown_length(name: str) -> Exception:
    said = f"`{name}` is called with a list whose length a tensor decides"
    return refusal(said, "loop over it with `for`, or stack it first", "list-grows")


def _folded(function: Any, items: UnbackedItems, total: Any) -> tuple[Any, list[Any]]:
    """What a function makes of a total and each of the items in turn: the last total, and a list of all."""
    held: list[Any] = [total, []]
    variables = Variables.of_list(held, "total", "totals", watched=lambda: (("function", function),))

    def take(item: Any) -> None:
        held[0] = _call(function, held[0], item)
        held[1] = [*held[1], held[0]]

    items.each(take, lambda: False, variables)
    return held[0], held[1]


def _after_first(items: Any) -> tuple[torch.Tensor, Any, UnbackedItems]:
    """How many items there are, the first, and the others, where a tensor decides how many there are."""
    found = unbacked_items.listed(items)
    rest = unbacked_items.of(dynamic_list_methods.opened(found)[1:])
    assert rest is not None
    first = dynamic_list_methods.at_position(dynamic_list_methods.whole(found), host_scalars.as_int64(0))
    return dynamic_list_methods.length(found), first, rest


def _accumulate(items: Iterable[Any], function: Any = None, *, initial: Any = None) -> Iterator[Any]:
    """`itertools.accumulate(items, function, initial=initial)`."""
    function = function or operator.add
    found = unbacked_items.of(items) if is_on() else None
    if found is None:
        return _accumulated(items, function, initial)
    if initial is not None:
        return Cursor([initial, *_folded(function, found, initial)[1]])
    count, first, rest = _after_first(items)
    return Cursor(dynamic_list_methods.opened([first, *_folded(function, rest, first)[1]])[:count])


def _accumulated(items: Iterable[Any], function: Any, initial: Any) -> Iterator[Any]:
    total = _NONE if initial is None else initial
    if total is not _NONE:
        yield total
    for each in items:
        total = each if total is _NONE else _call(function, total, each)
        yield total


def _reduce(function: Any, items: Iterable[Any], *initial: Any) -> Any:
    """`functools.reduce(function, items, *initial)`."""
    found = unbacked_items.of(items) if is_on() else None
    if found is None:
        return functools.reduce(partial(_call, function), items, *initial)
    if initial:
        return _folded(function, found, *initial)[0]
    count, first, rest = _after_first(items)
    error = TypeError("reduce() of empty iterable with no initial value")
    runtime_asserts.require(count > 0, error, holds=True)
    return _folded(function, rest, first)[0]


def _pairwise(items: Any) -> Any:
    """`itertools.pairwise(items)`."""
    if not is_on() or unbacked_items.of(items) is None:
        return itertools.pairwise(items)
    found = unbacked_items.listed(items)
    return unbacked_items.zipped(found, dynamic_list_methods.opened(found)[1:])


def _zip_longest(*values: Any, fillvalue: Any = None) -> Any:
    """`itertools.zip_longest(*values, fillvalue=fillvalue)`."""
    if not is_on() or all(unbacked_items.of(each) is None for each in values):
        return itertools.zip_longest(*values, fillvalue=fillvalue)
    return unbacked_items.zipped_longest(values, fillvalue)


def method(function: Any) -> Function | None:
    """What stands for `itertools.chain.from_iterable`."""
    is_chain = getattr(function, "__self__", None) is itertools.chain
    return (lambda parts: _chain(*parts)) if is_chain and function.__name__ == "from_iterable" else None


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
    itertools.pairwise: _pairwise,
    itertools.zip_longest: _zip_longest,
}
