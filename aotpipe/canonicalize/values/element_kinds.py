"""The kind that the elements of a dynamic list have, and elements in buffers of that kind.

`abstract_list` finds what the elements of a list have in common on all paths, `fitted` brings a list into
that form. Elements, or parts of them, may be lists of different lengths: each is then a dynamic list itself,
whose buffers are rows of those of the list around it, with room for the longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.values import abstract_values, host_scalars, object_fields, structures, trace
from aotpipe.canonicalize.values.abstract_values import (
    UNDEFINED,
    AbstractValue,
    Incompatible,
    Leaf,
    Undefined,
    is_same,
)
from aotpipe.canonicalize.values.chosen_object import is_object
from aotpipe.canonicalize.values.dynamic_list import (
    Assumed,
    DynamicList,
    Kind,
    beside,
    dynamic_lists,
    is_dynamic_list,
    slots,
    sym_max,
)
from aotpipe.canonicalize.values.structures import Flat


class OtherStructures(Incompatible):
    """Elements are tuples of other lengths, dicts of other keys or objects of other classes."""


def abstract_list(
    paths: Sequence[object], capacity: Any, *, trips: Any = None, may_nest: bool = True
) -> AbstractValue | None:
    """The abstract value of a list that has other lengths on other paths; None for any other variable.

    Its capacity is the most that it has on a path where None is given. `trips` tells of a loop how often it
    runs: the paths are then what a variable is before it, and before and after an iteration. Its elements
    `may_nest` lists of different lengths.

    Raises:
        Incompatible: Its elements have no common abstract value.
    """
    known: list[list[Any]] = [each for each in paths if type(each) is list]
    if not known or len(known) < sum(not isinstance(each, Undefined) for each in paths):
        return None
    if len({len(each) for each in known}) == 1 and not any(map(is_dynamic_list, known)):
        return None
    columns = [each if type(each) is list else [] for each in paths]
    return abstract_of_segments(columns, capacity, trips=trips, may_nest=may_nest)[0]


def abstract_of_segments(
    paths: Sequence[Sequence[Any]], capacity: Any, *, trips: Any = None, may_nest: bool = True
) -> tuple[AbstractValue, Kind]:
    """The abstract value of what has these elements on different paths, and the kind of all elements.

    The arguments are as those of `abstract_list`.

    Raises:
        Incompatible: They have no common abstract value.
    """
    if capacity is None:
        capacity = reduce(sym_max, map(slots, paths))
    segments = [segment for each in paths for segment in each]
    object_fields.register(segments)
    columns = [[*map(_row, each)] for each in paths]
    known = [] if trips is None else columns
    room = _Room(trips, *(frozenset(_lists_inside(each)) for each in known[:2])) if may_nest else None
    kind = _kind([row for each in columns for row in each], capacity, room)
    count = Leaf(torch.int64, (), torch.device("cpu"), number=True)
    # Of objects, a buffer has their numbers: it is none of them itself.
    leaves = (*_rows(kind), count)
    spec = pytree.tree_structure([DynamicList(kind, [0] * len(kind.computed), 0)])  # type: ignore[list-item, arg-type]
    return AbstractValue(spec, leaves, fitted=lambda items: [fitted(items, kind)]), kind


def _lists_inside(rows: Sequence[Flat]) -> Iterator[int]:
    """The structures of the lists that are elements, or in them, by identity."""
    left = [spec for _, spec in rows]
    while left:
        spec = left.pop()
        if spec.type is list:
            yield id(spec)
        if spec.type is DynamicList:
            left.append(spec.context.spec)
        elif not spec.is_leaf():
            left += spec.children()


@dataclass(frozen=True, slots=True)
class _Room:
    """How much room lists have that are elements of other lists, or parts of these.

    Attributes:
        trips: How often a loop runs; None outside of one.
        begun: The structures of those that are there before the loop, by identity.
        before: The structures of those that an iteration starts from, by identity.
    """

    trips: Any = None
    begun: frozenset[int] = frozenset()
    before: frozenset[int] = frozenset()

    def of(self, specs: Sequence[pytree.TreeSpec]) -> Any:
        """The room for each of some lists, of which one may be what an iteration made of another.

        Raises:
            Incompatible: They grow in an iteration by what no number tells.
        """
        most = reduce(sym_max, map(_slots, specs))
        before = [_slots(each) for each in specs if id(each) in self.before]
        if self.trips is None or not before:
            return most
        growth = most - reduce(sym_max, before)
        if isinstance(growth, torch.SymInt) and growth.node.expr.is_number:
            growth = int(growth)  # of two capacities that follow one Dim
        if not isinstance(growth, int) or growth > _MOST_GROWTH:
            raise Incompatible(
                "holds lists that grow in an iteration by a number of elements that varies",
                hint="append the same number in each iteration",
                code="list-grows",
            )
        if growth <= 0:
            return most
        trips: Any = int(self.trips) if isinstance(self.trips, Assumed) else self.trips
        begun = reduce(sym_max, (_slots(each) for each in specs if id(each) in self.begun), 0)
        room = sym_max(begun + trips * growth, most - growth)
        if isinstance(self.trips, Assumed):
            said = (
                "a list that is in a dict or in another list grows in a loop whose number of iterations no "
                f"counter proves: it has room for {room} elements"
            )
            hint = (
                "a call that needs more fails an assert; let the loop's test compare a counter with a number"
            )
            trace.note("warning", "list-room-assumed", f"{said}; {hint}")
        return room


# A list that is made of its own parts gets longer by its own length in each round.
_MOST_GROWTH: Final = 4096


def _rows(kind: Kind) -> Iterator[Leaf]:
    """The leaves of the buffers of a dynamic list."""
    room = int(kind.capacity) if isinstance(kind.capacity, Assumed) else kind.capacity
    return (replace(each, shape=(room, *each.shape), number=False, options=()) for each in kind.computed)


def _row(segment: Any) -> Flat:
    """The leaves of an element and its structure; of many, those of each."""
    if type(segment) is DynamicList:
        return segment.kind.leaves, segment.kind.spec
    return structures.flatten(segment, of_leaves=True)


def _kind(rows: Sequence[Flat], capacity: Any, room: _Room | None) -> Kind:
    nested = None if room is None else lambda lists: _nested_spec(lists, room)
    spec = structures.unified(rows, of_leaves=True, lists=nested)
    if spec is None:
        hint = _LENGTHS_HINT if _differ_in_length([spec for _, spec in rows]) else _FORM_HINT
        raise OtherStructures("holds elements of different structures", hint=hint, code="")
    columns = zip(*(structures.aligned(row, spec, UNDEFINED, _nested_leaves) for row in rows), strict=True)
    return Kind(capacity, spec, tuple(map(_column, structures.roles(spec), columns)))


def _is_nested(spec: pytree.TreeSpec) -> bool:
    """Whether a structure is that of a list with the elements of one dynamic list."""
    return spec.type is list and spec.num_children == 1 and spec.child(0).type is DynamicList


def _slots(spec: pytree.TreeSpec) -> Any:
    """How many elements a list has room for."""
    return sum(each.context.capacity if each.type is DynamicList else 1 for each in spec.children())


def _nested_spec(rows: Sequence[Flat], room: _Room) -> pytree.TreeSpec | None:
    """The structure of lists of different lengths: each a dynamic list of one kind; None of one length."""
    specs = [spec for _, spec in rows]
    is_dynamic = any(each.type is DynamicList for spec in specs for each in spec.children())
    if not is_dynamic and len({spec.num_children for spec in specs}) == 1:
        return None
    inner = [each for row in rows for each in _segments(row)]
    kind = _kind(inner, room.of(specs), room)
    made = DynamicList(kind, [0] * len(kind.computed), 0)  # type: ignore[list-item, arg-type]
    return pytree.tree_structure([made])


def _segments(row: Flat) -> Iterator[Flat]:
    """The elements of a list that is an element, of which some may be those of a dynamic list."""
    for leaves, spec in structures.children(row):
        yield (spec.context.leaves, spec.context.spec) if spec.type is DynamicList else (leaves, spec)


def _nested_leaves(_: Flat, wanted: pytree.TreeSpec) -> list[Any] | None:
    """The leaves of a kind's own, in the places of a list that is a dynamic list in it; None of any other."""
    if not _is_nested(wanted):
        return None
    kind: Kind = wanted.child(0).context
    count = Leaf(torch.int64, (), torch.device("cpu"), number=True)
    return [*_rows(kind), count]


_FORM_HINT: Final = "give its elements one form: numbers or tensors in the same places"
_LENGTHS_HINT: Final = (
    "put pairs into one list in place of lists (`pairs.append((key, value))`), or pad to one length with a "
    "number that nothing else has"
)


def _differ_in_length(specs: Sequence[pytree.TreeSpec]) -> bool:
    """Whether the first thing in which structures differ is how long a list or a tuple is."""
    first = specs[0]
    if any(spec.type is not first.type for spec in specs):
        return False
    if any(spec.num_children != first.num_children for spec in specs):
        return first.type in (list, tuple)
    columns = zip(*(spec.children() for spec in specs), strict=True)
    return any(_differ_in_length(column) for column in columns if any(spec != column[0] for spec in column))


def _column(role: structures.Role, column: Sequence[Any]) -> object:
    if role == "flag":
        return abstract_values.FLAG
    leaves = [leaf for leaf in column if not isinstance(leaf, Undefined)]
    held = [leaf for leaf in leaves if isinstance(leaf, Leaf)]
    plain = [leaf for leaf in leaves if not isinstance(leaf, Leaf)]
    if plain:
        try:
            found = abstract_values.join_leaves(plain)
        except Incompatible as error:
            raise Incompatible(f"holds an element that {error}", hint=error.hint) from None
        # Of a variable with other values on other paths, a tensor without dims fills one that has some; of a
        # list it is an element with a shape of its own.
        if isinstance(found, Leaf) and (found.cut is not None or found.filled):
            raise Incompatible("holds tensors of different shapes", code="")
        if not isinstance(found, Leaf):
            if not held:
                return found
            if not held[0].options or not is_object(found):
                raise Incompatible("holds elements of different kinds", code="")
            found = replace(held[0], options=(found,))
        held.append(found)
    first = held[0]
    for other in held[1:]:
        if tuple(map(str, other.shape)) != tuple(map(str, first.shape)):
            raise Incompatible("holds tensors of different shapes", code="")
        if bool(other.options) is not bool(first.options):
            raise Incompatible("holds elements of different kinds", code="")
        more = [each for each in other.options if not any(is_same(each, own) for own in first.options)]
        first = replace(first, options=(*first.options, *more))
        dtype = host_scalars.promoted(first.dtype, other.dtype)
        promoted = first.promoted or other.promoted or first.dtype != other.dtype
        first = replace(first, dtype=dtype, number=first.number and other.number, promoted=promoted)
    if first.promoted:
        note_promoted("an element of a list", first.dtype)
    return first


def note_promoted(what: str, dtype: torch.dtype) -> None:
    """Say that a value which a tensor chooses among several has one dtype whichever it is."""
    trace.note(
        "warning",
        "dtype-promoted",
        f"{what} has another dtype than the others: in the program it is {dtype} whichever is chosen",
    )


def fitted(items: Sequence[Any], kind: Kind) -> DynamicList:
    """The elements of a list as one `DynamicList` of a kind that has room for them."""
    capacity = int(kind.capacity) if isinstance(kind.capacity, Assumed) else kind.capacity
    split = next((at for at, each in enumerate(items) if type(each) is DynamicList), len(items))
    count: Any = split
    start = [_leaves(each, kind) for each in items[:split]]
    at = [index for index, leaf in enumerate(kind.leaves) if isinstance(leaf, Leaf)]
    buffers = [
        _filled(leaf, [_tensor(leaf, row[index]) for row in start], capacity)
        for index, leaf in zip(at, kind.computed, strict=True)
    ]
    places = torch.arange(capacity)
    for each in items[split:]:
        if type(each) is not DynamicList:
            row = _leaves(each, kind)
            new = [_tensor(leaf, row[index]) for index, leaf in zip(at, kind.computed, strict=True)]
            buffers = [
                torch.where(beside(places == count, buffer), value, buffer)
                for buffer, value in zip(buffers, new, strict=True)
            ]
            count = count + 1
        elif isinstance(count, int) and count == 0:
            buffers = [_grown(given, capacity, each.kind.capacity) for given in _of_kind(each, kind)]
            count = each.count
        else:
            buffers = [
                _joined(buffer, given, places - count, each.kind.capacity)
                for buffer, given in zip(buffers, _of_kind(each, kind), strict=True)
            ]
            count = count + each.count
    if isinstance(count, int):
        count = host_scalars.as_host_scalar(torch.full((), count, dtype=torch.int64))
    if isinstance(kind.capacity, Assumed):
        trace.operators().add_assert(count <= capacity, kind.capacity.said)
    return DynamicList(kind, buffers, count).sharing(dynamic_lists(items))


def _leaves(element: Any, kind: Kind) -> list[Any]:
    """The leaves of an element, where those of a kind are."""

    def nested(row: Flat, wanted: pytree.TreeSpec) -> list[Any] | None:
        if not _is_nested(wanted):
            return None
        leaves, spec = row
        return _of_nested(pytree.tree_unflatten(leaves, spec), wanted.child(0).context)

    row = structures.flatten(element, of_leaves=True)
    return structures.aligned(row, kind.spec, UNDEFINED, nested)


def _of_nested(items: list[Any], kind: Kind) -> list[Any]:
    """The leaves of a list that is an element, as those of a dynamic list of a kind."""
    if not statically_known_true(slots(items) <= kind.capacity):
        count = reduce(
            lambda total, each: total + (each.count if type(each) is DynamicList else 1),
            items,
            torch.zeros((), dtype=torch.int64),
        )
        _require_room(count, kind.capacity)
    found = fitted(items, kind)
    return [*found.buffers, found.count]


def _require_room(counts: torch.Tensor, room: Any) -> None:
    """Let the program raise where a list that is an element outgrows its room and would lose its end."""
    said = f"a list that is in a dict or in another list has room for {room} elements, and grew beyond"
    trace.operators().add_assert((counts <= room).all(), said)


def _of_kind(found: DynamicList, kind: Kind) -> list[torch.Tensor]:
    """The buffers of a dynamic list, for a kind that has its own leaves or wider ones."""
    buffers = iter(found.buffers)
    own = [_Row(leaf, next(buffers)) if isinstance(leaf, Leaf) else leaf for leaf in found.kind.leaves]
    capacity = found.kind.capacity

    def nested(row: Flat, wanted: pytree.TreeSpec) -> list[Any] | None:
        return _rows_of_nested(row, wanted.child(0).context, capacity) if _is_nested(wanted) else None

    places = structures.aligned((own, found.kind.spec), kind.spec, UNDEFINED, nested)
    return [
        _wider(leaf, each, capacity)
        for leaf, each in zip(kind.leaves, places, strict=True)
        if isinstance(leaf, Leaf)
    ]


def _rows_of_nested(row: Flat, kind: Kind, capacity: Any) -> list[Any]:
    """The buffers of lists that are elements, as those of dynamic lists of a kind, which has room for them.

    Args:
        row: The lists' leaves, each with a buffer along whose first dim the lists are, and their structure.
        kind: What each list is to be.
        capacity: How many lists there are.
    """

    def nested(inner: Flat, wanted: pytree.TreeSpec) -> list[Any] | None:
        return _rows_of_nested(inner, wanted.child(0).context, capacity) if _is_nested(wanted) else None

    leaves, spec = row
    if _is_nested(spec):
        return _rows_of_dynamic(leaves, spec.child(0).context, kind, capacity)
    held = spec.num_children
    if not statically_known_true(held <= kind.capacity):
        _require_room(torch.tensor(held), kind.capacity)
    columns = [structures.aligned(each, kind.spec, UNDEFINED, nested) for each in structures.children(row)]
    rows: list[Any] = []
    for at, leaf in enumerate(kind.leaves):
        if not isinstance(leaf, Leaf):
            continue
        values = [_wider(leaf, column[at], capacity) for column in columns]
        empty = torch.zeros((capacity, 0, *leaf.shape), dtype=leaf.dtype, device=leaf.device)
        buffer = torch.stack(values, 1) if values else empty
        rows.append(_Row(replace(leaf, options=()), _grown(buffer, kind.capacity, held, dim=1)))
    return [*rows, held]


def _rows_of_dynamic(leaves: Sequence[Any], own: Kind, kind: Kind, capacity: Any) -> list[Any]:
    """The same of lists that are dynamic lists of a kind of their own."""
    *buffers, count = leaves
    if not statically_known_true(own.capacity <= kind.capacity):
        _require_room(count.buffer, kind.capacity)
    given = iter(buffers)
    # The elements of all lists, one after the other.
    every = capacity * own.capacity
    flat = [
        _Row(leaf, next(given).buffer.flatten(0, 1)) if isinstance(leaf, Leaf) else leaf
        for leaf in own.leaves
    ]

    def nested(inner: Flat, wanted: pytree.TreeSpec) -> list[Any] | None:
        return _rows_of_nested(inner, wanted.child(0).context, every) if _is_nested(wanted) else None

    places = structures.aligned((flat, own.spec), kind.spec, UNDEFINED, nested)
    rows: list[Any] = []
    for leaf, each in zip(kind.leaves, places, strict=True):
        if isinstance(leaf, Leaf):
            buffer = _wider(leaf, each, every).reshape((capacity, own.capacity, *leaf.shape))
            rows.append(_Row(replace(leaf, options=()), _grown(buffer, kind.capacity, own.capacity, dim=1)))
    return [*rows, count]


@dataclass(frozen=True, slots=True)
class _Row:
    """A leaf of a dynamic list, and its buffer."""

    leaf: Leaf
    buffer: torch.Tensor


def _wider(leaf: Leaf, found: Any, capacity: Any) -> torch.Tensor:
    """The buffer of a leaf for one that has its values, or the same value for each element."""
    if not isinstance(found, _Row):
        return _tensor(leaf, found).expand((capacity, *leaf.shape)).to(leaf.dtype)
    if found.leaf.options != leaf.options:
        numbers = torch.stack([_tensor(leaf, each) for each in found.leaf.options])
        return numbers[found.buffer].to(leaf.dtype)
    return found.buffer.to(leaf.dtype)


def _tensor(leaf: Leaf, value: object) -> torch.Tensor:
    (tensor,) = leaf.of(value)
    return tensor


def _filled(leaf: Leaf, rows: Sequence[torch.Tensor], capacity: Any) -> torch.Tensor:
    if not rows:
        return torch.zeros((capacity, *leaf.shape), dtype=leaf.dtype, device=leaf.device)
    return _grown(torch.stack(list(rows)), capacity, len(rows))


def _grown(buffer: torch.Tensor, capacity: Any, held: Any, dim: int = 0) -> torch.Tensor:
    if str(capacity) == str(held):
        return buffer
    if statically_known_true(capacity < held):
        # A branch in the last iteration that there can be has room for one more.
        return buffer.narrow(dim, 0, capacity)
    shape = (*buffer.shape[:dim], capacity - held, *buffer.shape[dim + 1 :])
    return torch.cat([buffer, torch.zeros(shape, dtype=buffer.dtype, device=buffer.device)], dim)


def _joined(buffer: torch.Tensor, given: torch.Tensor, places: torch.Tensor, capacity: Any) -> torch.Tensor:
    """Append elements to those of a buffer; `places` counts from the end of the buffer's own."""
    moved = given.index_select(0, places.clamp(0, capacity - 1))
    return torch.where(beside((places >= 0) & (places < capacity), buffer), moved, buffer)
