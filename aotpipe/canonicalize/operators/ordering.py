"""How Python orders traced values: `sorted`, `min` and `max` of lists, `bisect`, heaps, `<` of tuples.

Tuples are ordered by their first elements that differ, as Python orders them.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.alias import effects
from aotpipe.canonicalize.operators import conditional, dynamic_list_methods, dynamic_table_methods
from aotpipe.canonicalize.operators.dynamic_list_methods import (
    as_one,
    at_position,
    insert,
    length,
    numbers,
    refill,
    rows_at,
    selected,
    whole,
)
from aotpipe.canonicalize.trace import runtime_asserts, torch_functions
from aotpipe.canonicalize.values import host_scalars, structures, trace
from aotpipe.canonicalize.values.abstract_values import Leaf
from aotpipe.canonicalize.values.dynamic_list import DynamicList, is_dynamic_list, slots
from aotpipe.canonicalize.values.trace import refusal


def sorted_(items: Any, *, key: Any = None, reverse: Any = False) -> Any:
    """`sorted(items, key=key, reverse=reverse)`."""
    items = items if is_dynamic_list(items) else list(items)
    found_keys = items if key is None else _keys(key, items)
    if not is_dynamic_list(found_keys):
        found_keys = [*map(compared_fields, found_keys)]
    leaves = pytree.tree_leaves(found_keys)
    if not is_dynamic_list(items) and (not any(map(torch_functions.is_traced, leaves)) or len(items) < 2):
        return [items[at] for at in sorted(range(len(items)), key=found_keys.__getitem__, reverse=reverse)]
    by = as_one(found_keys)
    compared, is_total = _compared(by)
    if any(buffer.dim() > 1 for buffer, _ in compared) or torch_functions.is_traced(reverse):
        raise refusal("a list is sorted by tensors of several elements", "give a `key` that is one number")
    size = by.kind.capacity if is_dynamic_list(items) else len(items)
    there = torch.arange(size) < by.count if is_dynamic_list(items) else torch.full((size,), True)
    order = torch.arange(size)
    # By what counts least first: a stable sort keeps that order among what is equal.
    columns = [_ranks(buffer, leaf)[:size] for buffer, leaf in compared]
    for column in reversed(columns):
        if column.dtype.is_floating_point:
            ordered = torch.logical_or(column == column, there.logical_not()).all()
            runtime_asserts.add_assert(ordered, "a list with NaN in it is sorted: Python has no order for it")
        order = _sorted_by(column, order, descending=bool(reverse))
    order = _sorted_by(there.logical_not(), order, descending=False)
    if not is_total and size > 1:
        ranked = [each.index_select(0, order) for each in (there, *columns)]
        ties = torch.stack([each[1:] == each[:-1] for each in ranked]).all(0).logical_and(ranked[0][1:])
        _refuse_ties(ties)
    found = as_one(items)
    if is_dynamic_list(items):
        return [rows_at(found, order, found.count)]
    held = structures.tensors_in(items)
    return [selected(found, order[place], held) for place in range(size)]


def _compared(found: DynamicList) -> tuple[list[tuple[torch.Tensor, Leaf]], bool]:
    """The buffers by which Python orders elements, and whether these decide.

    Objects without an order of their own, or with one that is code of the model's, are compared where all
    that stands before them is equal.

    Raises:
        ExportFailed: Such objects are the first thing that is compared.
    """
    places: list[int] = []
    unordered = _add_compared(found.kind.spec, 0, places)
    if unordered is not None and not places and structures.may_lack(found.kind.spec):
        raise refusal(
            "a list is ordered in which some elements may be None, where a tensor decides which",
            "leave these out first: `[each for each in items if each is not None]`",
        )
    if unordered is not None and not places:
        raise refusal(
            f"a list of objects of {unordered} is ordered, where a tensor decides on its elements",
            "give a `key` that is a number, or put tuples into it that begin with one",
        )
    held = iter(zip(found.buffers, found.kind.computed, strict=True))
    buffers = [next(held) if isinstance(leaf, Leaf) else None for leaf in found.kind.leaves]
    return [each for place in places if (each := buffers[place]) is not None], unordered is None


def _add_compared(spec: pytree.TreeSpec, first: int, places: list[int]) -> str | None:
    """Add the places of the leaves that Python compares, in turn; gives the class without a known order."""
    if spec.is_leaf():
        places.append(first)
        return None
    children = spec.children()
    starts = [*itertools.accumulate((each.num_leaves for each in children), initial=first)]
    fields = _ordered_fields(spec, len(children))
    if fields is None:
        kind = spec.context[0] if isinstance(spec.context, tuple) else spec.context or spec.type
        return str(getattr(kind, "__name__", spec.type.__name__))
    found = (_add_compared(children[at], starts[at], places) for at in fields)
    return next((each for each in found if each is not None), None)


def _ordered_fields(spec: pytree.TreeSpec, count: int) -> list[int] | None:
    """Which parts of a value Python compares, in turn; None where that is not known."""
    # torch's trees have one type for all named tuples, which is no class.
    kind = spec.type if isinstance(spec.type, type) else spec.context
    own = getattr(kind, "__lt__", None)
    if kind is type(None) or own in (tuple.__lt__, list.__lt__):
        return [*range(count)]
    if not dataclasses.is_dataclass(kind) or not is_ordered_by_fields(kind):
        return None
    fields = dataclasses.fields(kind)
    names = spec.context[1] if isinstance(spec.context, tuple) else [each.name for each in fields]
    return [names.index(each.name) for each in fields if each.compare and each.name in names]


def compared_fields(value: Any) -> Any:
    """The tuple by which Python orders an object of such a dataclass; any other value itself.

    Its own `<` is no code that can be rewritten.
    """
    if not is_ordered_by_fields(type(value)):
        return value
    return tuple(getattr(value, each.name) for each in dataclasses.fields(value) if each.compare)


def is_ordered_by_fields(kind: Any) -> bool:
    """Whether a class is a dataclass whose objects are ordered as tuples of their fields are."""
    code = getattr(getattr(kind, "__lt__", None), "__code__", None)
    return (
        "__dataclass_params__" in vars(kind) and isinstance(code, CodeType) and code.co_filename == "<string>"
    )


def _ranks(buffer: torch.Tensor, leaf: Leaf) -> torch.Tensor:
    """Numbers that are ordered as what a list holds: of texts that a tensor chooses, their ranks."""
    if not leaf.options:
        return buffer
    if not all(isinstance(each, str) for each in leaf.options):
        raise refusal("a list is sorted by objects that a tensor chooses", "give a `key` that is a number")
    order = sorted(leaf.options)
    return torch.tensor([order.index(each) for each in leaf.options])[buffer]


def insort(a: list[Any], x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None, right: bool) -> None:
    """`bisect.insort(a, x, lo, hi, key=key)`, of a list that is sorted by numbers."""
    by = x if key is None else trace.operators().call(key, x)
    insert(a, bisected(a, by, lo, hi, key=key, right=right), x)


def _sorted_by(column: torch.Tensor, order: torch.Tensor, *, descending: bool) -> torch.Tensor:
    ranks = column.index_select(0, order).to(torch.int64 if column.dtype == torch.bool else column.dtype)
    return order.index_select(0, torch.sort(ranks, stable=True, descending=descending).indices)


def bisected(a: list[Any], x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None, right: bool) -> Any:
    """`bisect.bisect(a, x, lo, hi, key=key)`, of a list that is sorted by numbers."""
    runtime_asserts.require(
        torch_functions.as_tensor(lo) >= 0, ValueError("lo must be non-negative"), holds=True
    )
    if not a:
        return lo
    keys = a if key is None else _keys(key, a)
    found, buffer, there = numbers([as_one(keys)], "`bisect`")
    size = slots(a)
    end = found.count if hi is None else torch_functions.as_tensor(hi)
    runtime_asserts.add_assert(end <= found.count, "`bisect` looks beyond the end of the list")
    places = torch.arange(size)
    looked_at = there[:size].logical_and(places >= lo).logical_and(places < end)
    ascends = torch.logical_or(
        buffer[: size - 1] <= buffer[1:size], looked_at[:-1].logical_and(looked_at[1:]).logical_not()
    )
    runtime_asserts.add_assert(ascends.all(), "`bisect` takes a list that is sorted")
    before = buffer[:size] <= x if right else buffer[:size] < x
    return lo + host_scalars.as_host_scalar(torch.logical_and(looked_at, before).sum())


def _keys(key: Any, items: Any) -> Any:
    if is_dynamic_list(items):
        return dynamic_table_methods.values_by(key, items) or trace.operators().mapped(key, items)
    return [trace.operators().call(key, each) for each in items]


def extreme(items: list[Any], *, largest: bool, key: Any = None, **default: Any) -> Any:
    """`max(items, key=key, **default)` where the `largest` is asked for, else `min(...)`."""
    if default:
        filled = length(items) > 0
        return conditional.choose(
            filled, lambda: extreme(items, largest=largest, key=key), lambda: default["default"]
        )
    keys = items if key is None else _keys(key, items)
    if not whole(keys).kind.spec.is_leaf():
        # Of those that are equal Python takes the first, as a stable sort does.
        runtime_asserts.require(length(items) > 0, ValueError("arg is an empty sequence"), holds=True)
        return _noted(at_position(whole(sorted_(items, key=key, reverse=largest)), host_scalars.as_int64(0)))
    by, buffer, there = numbers(keys, "`min` or `max`")
    runtime_asserts.require(by.count > 0, ValueError("arg is an empty sequence"), holds=True)
    # NaN compares as neither better nor worse, and Python takes another element only where that is better: it
    # never takes a NaN after the first element, and keeps one that is the first.
    there = there.logical_and(buffer == buffer)
    worst: float = -math.inf if largest else math.inf
    if buffer.dtype == torch.bool:
        worst = not largest
    elif not buffer.dtype.is_floating_point:
        worst = torch.iinfo(buffer.dtype).min if largest else torch.iinfo(buffer.dtype).max
    among = torch.where(there, buffer, torch.full((), worst, dtype=buffer.dtype))
    best = among.amax(0) if largest else among.amin(0)
    best = torch.where(buffer[0] == buffer[0], best, buffer[0])
    if key is None:
        element: torch.Tensor = by.element(lambda _: best)
        return element
    first = torch.where(there.logical_and(buffer == best), torch.arange(len(there)), len(there)).amin(0)
    position = torch.where(buffer[0] == buffer[0], first, 0)
    return _noted(at_position(whole(items), position))


def _noted(element: Any) -> Any:
    """An element, which is a copy of one that stays in its list."""
    effects.note_element(element)
    return element


def sort(items: list[Any], **options: Any) -> None:
    """`items.sort(**options)`."""
    items[:] = sorted_(items, **options)


def method(function: Any) -> Callable[..., Any] | None:
    """What stands for `items.sort` of a list, where Python's own would compare traced values."""
    items: Any = getattr(function, "__self__", None)
    is_sort = type(items) is list and getattr(function, "__name__", "") == "sort"
    return functools.partial(sort, items) if is_sort else None


def precedes(left: Any, right: Any) -> Any:
    """`left < right`, of numbers or of tuples of them."""
    left, right = compared_fields(left), compared_fields(right)
    if not (isinstance(left, tuple) and isinstance(right, tuple)):
        return left < right
    found: Any = len(left) < len(right)
    for one, other in reversed(list(zip(left, right, strict=False))):
        if one is other:
            continue
        less = precedes(one, other)
        found = conditional.choose(_equal(one, other), lambda: found, lambda: less)  # noqa: B023  # called at once
    return found


def _equal(left: Any, right: Any) -> Any:
    if not (isinstance(left, tuple) and isinstance(right, tuple)):
        return left == right
    if len(left) != len(right):
        return False
    flags = [torch_functions.truth_of(_equal(*pair)) for pair in zip(left, right, strict=True)]
    return torch.stack(flags).all()


def place_of_extreme(keys: Sequence[Any], *, largest: bool) -> Any:
    """The place of the first of some keys that no other precedes, or of the first that precedes none."""
    best, place = keys[0], host_scalars.as_int64(0)
    for at, key in enumerate(keys[1:], 1):
        better = torch_functions.truth_of(precedes(best, key) if largest else precedes(key, best))
        place = torch.where(better, at, place)
        best = _either(better, key, best)
    return place


def _either(test: torch.Tensor, one: Any, other: Any) -> Any:
    return conditional.choose(test, lambda: one, lambda: other)


def _less(found: DynamicList, one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether elements are less than others; and whether Python would have to compare tensors with dims."""
    less, tied, compared = torch.full((), False), torch.full((), True), []
    buffers, is_total = _compared(found)
    for buffer, _ in buffers:
        if buffer.dim() > 1:
            break
        a, b = buffer.index_select(0, one), buffer.index_select(0, other)
        compared.append((a, b))
        tied = tied.logical_and(a == b)
    for a, b in reversed(compared):
        less = torch.where(a == b, less, a < b)
    return less, torch.full((), False) if is_total and len(compared) == len(buffers) else tied


def _refuse_tied(tied: torch.Tensor, asked: torch.Tensor) -> None:
    _refuse_ties(torch.logical_and(tied, asked))


def _refuse_ties(tied: torch.Tensor) -> None:
    """Assert that nothing is compared that has no order: Python raises, or asks the objects' own code."""
    said = (
        "RuntimeError: Boolean value of Tensor with more than one value is ambiguous, or objects are compared"
    )
    runtime_asserts.add_assert(tied.any().logical_not(), said)


def _shifted(found: DynamicList, path: torch.Tensor, count: torch.Tensor) -> DynamicList:
    """Move elements at the first `count + 1` places of a path one place back, and the first to the last."""
    steps, places = torch.arange(len(path)), torch.arange(found.kind.capacity)
    following = torch.cat([path[1:], path[-1:]])
    source = torch.where(steps < count, following, torch.where(steps == count, path[:1], path))
    hit = places[:, None] == path
    rows = torch.where(hit.any(1), torch.where(hit, source, 0).sum(1), places)
    buffers = [each.index_select(0, rows) for each in found.buffers]
    return DynamicList(found.kind, buffers, found.count).sharing([found])


def _risen(
    found: DynamicList, at: torch.Tensor, top: int = 0, *, used: bool | torch.Tensor = True
) -> DynamicList:
    """Let an element of a heap rise, up to a place, as long as it is less than its parent (`_siftdown`).

    Where the result is not `used`, Python compares nothing.
    """
    halves = 2 ** torch.arange(found.kind.capacity.bit_length() + 1)
    path = (at + 1) // halves - 1
    is_place = path >= top
    read = path.clamp_min(0)
    less, tied = _less(found, read[:1].expand(len(read)), read)
    moves = less.logical_and(is_place)[1:].to(torch.int64).cumprod(0)
    reached = torch.cat([torch.full((1,), 1), moves[:-1]]).to(torch.bool)
    _refuse_tied(tied.expand(len(read))[1:], reached.logical_and(is_place[1:]) & used)
    return _shifted(found, torch.where(is_place, path, -1), moves.sum())


def _sunk(found: DynamicList, top: int = 0, *, used: bool | torch.Tensor = True) -> DynamicList:
    """Let an element of a heap sink to a leaf, by the least child each time; then let it rise.

    Where the result is not `used`, Python compares nothing.
    """
    count, places = found.count, torch.arange(found.kind.capacity)
    left, right = ((2 * places + step).clamp_max(found.kind.capacity - 1) for step in (1, 2))
    both = 2 * places + 2 < count
    less, tied = _less(found, left, right)
    child = torch.where(2 * places + 1 < count, torch.where(both.logical_and(~less), right, left), -1)
    path = [torch.full((1,), top)]
    for _ in range(found.kind.capacity.bit_length()):
        at = path[-1]
        path.append(torch.where(at < 0, at, child.index_select(0, at.clamp_min(0))))
    whole_path = torch.cat(path)
    visited = (places[:, None] == whole_path).any(1)
    _refuse_tied(tied, both.logical_and(visited) & used)
    found = _shifted(found, whole_path, (whole_path >= 0).sum() - 1)
    return _risen(found, whole_path.amax(0), top, used=used)


def _heap_of(items: list[Any]) -> DynamicList:
    """The elements of a list, of which a heap compares the numbers."""
    found = as_one(items)
    compared, _ = _compared(found)
    if not isinstance(found.kind.capacity, int) or not compared or compared[0][0].dim() > 1:
        raise refusal(
            "a heap of a list without a known room, or of elements that do not begin with a number",
            "push tuples that begin with a number, and bound the loop",
            "list-grows",
        )
    if any(leaf.options for leaf in found.kind.computed):
        raise refusal("a heap compares objects that a tensor chooses", "push a number for each")
    there = torch.arange(found.kind.capacity) < found.count
    for buffer, _ in compared:
        if buffer.dtype.is_floating_point and buffer.dim() == 1:
            ordered = torch.logical_or(buffer == buffer, there.logical_not()).all()
            runtime_asserts.add_assert(ordered, "a heap with NaN in it: Python has no order for it")
    return found


def _known_length(items: list[Any]) -> int | None:
    return None if is_dynamic_list(items) else len(items)


def _require_filled(items: list[Any]) -> None:
    error = IndexError("index out of range")
    if not items:
        raise runtime_asserts.raised(lambda: error)
    if is_dynamic_list(items):
        runtime_asserts.require(length(items) > 0, error, holds=True)


def heap_push(items: list[Any], item: Any) -> None:
    """`heapq.heappush(items, item)`."""
    items.append(item)
    if len(items) > 1:
        count = _known_length(items)
        found = _heap_of(items)
        refill(items, _risen(found, found.count - 1), count)


def heap_pop(items: list[Any]) -> Any:
    """`heapq.heappop(items)`."""
    _require_filled(items)
    count = _known_length(items)
    found = _heap_of(items)
    top, last = at_position(found, host_scalars.as_int64(0)), found.count - 1
    effects.note_chosen(top)
    places = torch.arange(found.kind.capacity)
    rest = rows_at(found, torch.where(places == 0, last, places), last)
    refill(items, _sunk(rest), None if count is None else count - 1)
    return top


def heap_replace(items: list[Any], item: Any) -> Any:
    """`heapq.heapreplace(items, item)`."""
    _require_filled(items)
    opened = dynamic_list_methods.opened(items)
    top, opened[0] = opened[0], item
    refill(items, _sunk(_heap_of(items)), _known_length(items))
    return top


def heap_push_pop(items: list[Any], item: Any) -> Any:
    """`heapq.heappushpop(items, item)`."""
    count = _known_length(items)
    items.append(item)
    found = _heap_of(items)
    last, places = found.count - 1, torch.arange(found.kind.capacity)
    less, tied = _less(found, places[:1], last.reshape(1))
    _refuse_tied(tied, last > 0)
    replaces = less.reshape(()).logical_and(last > 0)
    top = at_position(found, torch.where(replaces, 0, last))
    effects.note_chosen(top)
    rest = rows_at(found, torch.where(replaces.logical_and(places == 0), last, places), last)
    pairs = zip(_sunk(rest, used=replaces).buffers, rest.buffers, strict=True)
    found = DynamicList(rest.kind, [torch.where(replaces, new, old) for new, old in pairs], rest.count)
    refill(items, found, count)
    return top


_MOST_SUNK: Final = 64


def heapify(items: list[Any]) -> None:
    """`heapq.heapify(items)`."""
    if not items:
        return
    count = _known_length(items)
    found = _heap_of(items)
    room = found.kind.capacity if count is None else count
    if room > _MOST_SUNK:
        said = f"`heapify` of a list with room for {room} elements, whose length a tensor decides"
        raise refusal(said, "push its elements one by one: `heapq.heappush(heap, x)`", "list-grows")
    for top in reversed(range(room // 2)):
        if count is not None:
            found = _sunk(found, top)
            continue
        # Python begins at the parent of the last element.
        used = 2 * top + 1 < found.count
        pairs = zip(_sunk(found, top, used=used).buffers, found.buffers, strict=True)
        buffers = [torch.where(used, new, old) for new, old in pairs]
        found = DynamicList(found.kind, buffers, found.count)
    refill(items, found, count)


def first_sorted(count: Any, items: Any, key: Any = None, *, largest: bool) -> Any:
    """`heapq.nlargest(count, items, key)` where the `largest` are asked for, else `nsmallest`."""
    found = sorted_(items, key=key, reverse=largest)
    return dynamic_list_methods.opened(found)[: max(count, 0) if isinstance(count, int) else count]


HEAPS: Final[dict[Callable[..., Any], Callable[..., Any]]] = {
    heapq.heappush: heap_push,
    heapq.heappop: heap_pop,
    heapq.heapreplace: heap_replace,
    heapq.heappushpop: heap_push_pop,
    heapq.heapify: heapify,
}
