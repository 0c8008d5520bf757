"""List comprehensions over lists whose length only a run knows, and with tests that a tensor decides.

`of(items, plain, apart)` gives the list. `plain` is the comprehension as it was, over any items;
`elementwise` the same with each element as two functions: of its test, and of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch

from aotpipe.canonicalize.operators import unbacked_rows
from aotpipe.canonicalize.trace import regions, torch_functions
from aotpipe.canonicalize.values import host_scalars
from aotpipe.canonicalize.values.abstract_values import Variables

Pair = tuple[Callable[[], Any], Callable[[], Any]]


def of(
    items: Any,
    plain: Callable[[Iterable[Any]], list[Any]],
    elementwise: Callable[[Iterable[Any]], list[Pair]],
    *,
    tested: bool,
) -> list[Any]:
    """The list that a comprehension makes, where a graph is traced.

    Args:
        items: What it goes through.
        plain: Makes the list of any items.
        elementwise: Makes the tests and the elements of any items.
        tested: Whether it has a test.
    """
    found = unbacked_rows.of(items)
    if found is None and not tested:
        return plain(items)
    made: list[Any] = []

    def put(value: list[Any]) -> None:
        nonlocal made
        made = value

    variables = Variables(lambda: (made,), lambda values: put(values[0]), ("elements",), tuple)

    def take(item: Any) -> None:
        ((test, element),) = elementwise((item,))
        truth = test()
        if torch_functions.is_traced(truth):
            regions.branch(truth, lambda: put([*made, element()]), lambda: None, variables)
        elif truth:
            put([*made, element()])

    if found is not None:
        found.each(take, lambda: False, variables)
        return made
    for item in items:
        take(item)
    return made


def listed(value: Any = ()) -> list[Any]:
    """`list(value)`."""
    found = unbacked_rows.of(value)
    if found is None or isinstance(value, list):
        return list(value)
    return of(found, list, _as_they_are, tested=False)


def _as_they_are(items: Iterable[Any]) -> list[Pair]:
    return [(lambda: True, lambda each=each: each) for each in items]  # type: ignore[misc]


def method(function: Any) -> Callable[[], list[Any]] | None:
    """What stands for a tensor's own `tolist`, where only a run knows how many numbers it gives."""
    tensor = getattr(function, "__self__", None)
    if getattr(function, "__name__", "") != "tolist" or not isinstance(tensor, torch.Tensor):
        return None
    found = unbacked_rows.of(tensor)
    if found is None or tensor.dim() != 1:
        return None
    return lambda: listed(replace(found, at=lambda number: host_scalars.item(found.at(number))))
