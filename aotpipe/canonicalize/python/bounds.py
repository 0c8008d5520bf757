"""How many elements a list may have that grows in a loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from aotpipe.canonicalize.python import growing, numbers, running
from aotpipe.canonicalize.python.refusing import refusal

Values = tuple[Any, ...]


def room(at: int, start: Values, values: Values, seen: running.Seen, most: Any) -> Any:
    """How many elements a variable needs room for, if it is a list that grows; else None.

    Args:
        at: The variable's place.
        start: The variables before the loop.
        values: Those that a trip started from.
        seen: What the trip did.
        most: How many trips there are at most, where that is known.

    Raises:
        ExportFailed: Nothing says how many trips there are.
    """
    if not all(type(each[at]) is list for each in (start, values, seen.after)):
        return None
    growth = growing.slots(seen.after[at]) - growing.slots(values[at])
    if not isinstance(growth, int):
        raise refusal(
            "a list grows in a loop by a number of elements that varies",
            "append the same number in each trip",
        )
    if growth <= 0:
        return growing.slots(values[at])
    first = growing.slots(start[at])
    if most is not None:
        return first + most * growth
    own = [limit - off for base, off, limit in _limits(seen) if _is_count_of(values[at], base)]
    if own:
        return growing.sym_max(first, min(own) - 1 + growth)
    trips = [
        -(-(limit - off - begun) // step)
        for base, off, limit in _limits(seen)
        for begun, step in _steps(base, start, values, seen.after)
    ]
    if trips:
        return first + max(0, min(trips)) * growth
    if not growing.is_growing(values[at]):
        return growing.slots(seen.after[at])  # the next round tells
    raise refusal(
        "a list grows in a loop whose number of trips has no bound",
        "loop over `range(N)` and `break`, or let the loop's test say `i < N` of a counter",
    )


def _limits(seen: running.Seen) -> Iterator[tuple[torch.Tensor, int, int]]:
    for number, limit in seen.limits:
        base, off = numbers.from_base(number)
        yield base, off, limit


def _is_count_of(items: list[Any], base: torch.Tensor) -> bool:
    return len(items) == 1 and growing.is_growing(items) and items[0].count is base


def _steps(base: torch.Tensor, start: Values, values: Values, after: Values) -> Iterator[tuple[int, int]]:
    """Where the counter that a trip starts from begins, and what each trip adds to it."""
    for first, given, last in zip(start, values, after, strict=True):
        if given is base and isinstance(first, int):
            step = numbers.distance(base, last)
            if step is not None and step > 0:
                yield first, step
        if type(given) is list and _is_count_of(given, base) and not growing.is_growing(first):
            added = last[1:] if growing.is_growing(last) and last[0].count is base else []
            if added and not growing.is_growing(added):
                yield len(first), len(added)
