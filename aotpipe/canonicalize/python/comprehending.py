"""List comprehensions over lists whose length only a run knows, and with tests that a tensor decides.

`of(items, plain, apart)` gives the list. `plain` is the comprehension as it was, over any items; `apart` the
same with each element as two functions: of its test, and of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aotpipe.canonicalize.python import counting, dispatch, growing, lists, regions
from aotpipe.canonicalize.python.values import Variables

Pair = tuple[Callable[[], Any], Callable[[], Any]]


def of(
    items: Any,
    plain: Callable[[Iterable[Any]], list[Any]],
    apart: Callable[[Iterable[Any]], list[Pair]],
    *,
    tested: bool,
) -> list[Any]:
    """The list that a comprehension makes, where a graph is traced.

    Args:
        items: What it goes through.
        plain: Makes the list of any items.
        apart: Makes the tests and the elements of any items.
        tested: Whether it has a test.
    """
    grows = growing.is_growing(items)
    if not grows and not tested:
        return plain(items)
    made: list[Any] = []

    def put(value: list[Any]) -> None:
        nonlocal made
        made = value

    variables = Variables(lambda: (made,), lambda values: put(values[0]), ("elements",), tuple)

    def take(item: Any) -> None:
        ((test, element),) = apart((item,))
        truth = test()
        if dispatch.is_traced(truth):
            regions.branch(truth, lambda: put([*made, element()]), lambda: None, variables)
        elif truth:
            put([*made, element()])

    if not grows:
        for item in items:
            take(item)
        return made
    found = lists.whole(items)
    trips = counting.TensorRange(0, found.count, 1, most=found.kind.room)
    counting.counted(trips, lambda number: take(lists.item(found, number)), lambda: False, variables)
    return made
