"""How many elements a list may have that grows in a loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from aotpipe.canonicalize.trace import dry_run, torch_functions
from aotpipe.canonicalize.values import dynamic_list, host_scalars
from aotpipe.canonicalize.values.refusals import refusal

Values = tuple[Any, ...]


def capacity(at: int, start: Values, values: Values, summary: dry_run.EffectSummary, most: Any) -> Any:
    """How many elements a variable needs room for, if it is a list that grows; else None.

    Args:
        at: The variable's place.
        start: The variables before the loop.
        values: Those that an iteration started from.
        summary: What the iteration did.
        most: How many iterations there are at most, where that is known.

    Raises:
        ExportFailed: Nothing says how many iterations there are.
    """
    if not all(type(each[at]) is list for each in (start, values, summary.after)):
        return None
    growth = dynamic_list.slots(summary.after[at]) - dynamic_list.slots(values[at])
    if not isinstance(growth, int):
        raise refusal(
            "a list grows in a loop by a number of elements that varies",
            "append the same number in each iteration",
            "list-grows",
        )
    if growth <= 0:
        return dynamic_list.slots(values[at])
    first = dynamic_list.slots(start[at])
    if most is not None:
        return first + most * growth
    own = [
        limit.value - off
        for limit, base, off in _limits(summary)
        if not limit.floor and _is_count_of(values[at], base)
    ]
    if own:
        return dynamic_list.sym_max(first, min(own) - 1 + growth)
    counts = [
        -(-(limit.value - off - begun) // step)
        for limit, base, off in _limits(summary)
        for begun, step in _steps(base, start, values, summary.after, down=limit.floor)
    ]
    if counts:
        return first + max(0, min(counts)) * growth
    if not dynamic_list.is_dynamic_list(values[at]):
        return dynamic_list.slots(summary.after[at])  # the next round tells
    raise refusal(
        "a list grows in a loop whose number of iterations has no bound",
        "loop over `range(N)` and `break`, or let the loop's test say `i < N` of a counter",
        "list-grows",
    )


def length(start: Any, stop: Any, step: int) -> Any:
    """How many numbers a range has at most, as an int or a SymInt; None where only a run knows."""
    ends = [host_scalars.upper_bound(end) if isinstance(end, torch.Tensor) else end for end in (start, stop)]
    if step > 0 and isinstance(start, int) and isinstance(ends[1], int):
        return len(range(start, ends[1], step))
    if step < 0 and isinstance(ends[0], int) and isinstance(stop, int):
        return len(range(ends[0], stop, step))
    if step == 1 and not any(
        isinstance(end, torch.Tensor) or torch_functions.is_traced(end) for end in (start, stop)
    ):
        return dynamic_list.sym_max(stop - start, 0)
    return None


def _limits(summary: dry_run.EffectSummary) -> Iterator[tuple[host_scalars.Limit, torch.Tensor, int]]:
    for limit in summary.limits:
        yield (limit, *host_scalars.from_base(limit.number))


def _is_count_of(items: list[Any], base: torch.Tensor) -> bool:
    return len(items) == 1 and dynamic_list.is_dynamic_list(items) and items[0].count is base


def _steps(
    base: torch.Tensor, start: Values, values: Values, after: Values, *, down: bool
) -> Iterator[tuple[int, int]]:
    """The first value of an iteration's counter (the highest, if it goes down), and what each one adds."""
    for first, given, last in zip(start, values, after, strict=True):
        begun = host_scalars.upper_bound(first) if down or isinstance(first, int) else None
        if given is base and begun is not None:
            step = host_scalars.distance(base, last)
            if step is not None and (step < 0 if down else step > 0):
                yield begun, step
        if (
            not down
            and type(given) is list
            and _is_count_of(given, base)
            and not dynamic_list.is_dynamic_list(first)
        ):
            added = last[1:] if dynamic_list.is_dynamic_list(last) and last[0].count is base else []
            if added and not dynamic_list.is_dynamic_list(added):
                yield len(first), len(added)
