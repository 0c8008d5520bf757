"""What Python does with dicts and sets of which only a run of the graph knows the keys.

`opened(table)` stands for a dict where it is indexed, `method(function)` gives what stands for its methods
and for those of a set. Keys are numbers or texts, or tuples of these, in the order in which they came.
"""

from __future__ import annotations

import builtins
import functools
import operator
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.alias import effects, rebinding
from aotpipe.canonicalize.operators import conditional, dynamic_list_methods, size_keys, unbacked_items
from aotpipe.canonicalize.operators.dynamic_list_methods import Chosen, Opened, at_position, rows_at
from aotpipe.canonicalize.trace import return_values, runtime_asserts, torch_functions
from aotpipe.canonicalize.values import (
    chosen_object,
    dynamic_list,
    dynamic_table,
    element_kinds,
    host_scalars,
    structures,
    trace,
)
from aotpipe.canonicalize.values.abstract_values import Incompatible, Leaf, unwrap_present
from aotpipe.canonicalize.values.chosen_object import ChosenObject
from aotpipe.canonicalize.values.dynamic_list import DynamicList, beside
from aotpipe.canonicalize.values.dynamic_table import (
    DICTS,
    TABLE,
    is_dynamic_table,
    keys_in,
    pair,
    part_of,
    segments,
)
from aotpipe.canonicalize.values.optional_values import OptionalValue, from_origin
from aotpipe.canonicalize.values.trace import refusal

Function = Callable[..., Any]
_ABSENT: Final = object()


def is_traced_key(key: Any) -> bool:
    """Whether a key is a number or a text that only a run knows, or a tuple with one."""
    return any(map(_is_traced_part, dynamic_table.flat(key)))


def known_key(key: Any) -> Any:
    """A key, with what is known to be there in the place of what may be None."""
    if isinstance(key, OptionalValue | tuple):
        return unwrap_present(key)
    return key


def _is_traced_part(key: Any) -> bool:
    if isinstance(key, torch.Tensor):
        return host_scalars.is_host_scalar(key) and torch_functions.is_traced(key)
    return type(key) is ChosenObject or (isinstance(key, torch.SymInt) and torch_functions.is_traced(key))


def _is_of_a_run(table: Any, key: Any) -> bool:
    return is_dynamic_table(table) or is_traced_key(key)


def whole(table: Any) -> list[Any]:
    """The keys of a dict or a set, of a dict with their values, as elements that differ."""
    first, *behind = segments(table) or [None]
    if type(first) is not DynamicList:
        return segments(table)
    for each in behind:
        if type(each) is DynamicList:
            first = _united([first], [each])
        else:
            first = _put([first], each, is_set=type(table) is set)
    return [first]


def _fill(table: Any, found: DynamicList) -> None:
    return_values.check_placed(table, found)
    table.clear()
    if type(table) is set:
        table.add(found)
    else:
        table[TABLE] = found


def _forms(*lists: list[Any], more: int = 0) -> list[DynamicList]:
    """Lists of elements as dynamic lists of one kind, with room for so many more."""
    room = functools.reduce(dynamic_list.sym_max, map(dynamic_list.slots, lists)) + more
    try:
        _, kind = element_kinds.abstract_of_segments(lists, room)
    except Incompatible as error:
        raise refusal(
            f"a dict or a set has keys that a tensor decides, and {error}",
            error.hint
            if isinstance(error, element_kinds.OtherStructures)
            else "let the keys be numbers or tuples of as many numbers, and the values of one form",
            error.code,
        ) from None
    return [element_kinds.fitted(each, kind) for each in lists]


def _there(found: DynamicList) -> torch.Tensor:
    return torch.arange(found.kind.capacity) < found.count


def _hits(found: DynamicList, row: DynamicList, count: int) -> torch.Tensor:
    """Which elements have the key of the first of another list."""
    _check_keys(found, count)
    hit = _there(found)
    for buffer, new in zip(found.buffers[:count], row.buffers[:count], strict=True):
        hit = hit.logical_and(buffer == new[:1])
    return hit


def _check_keys(found: DynamicList, count: int) -> None:
    # The keys' buffers come first, and those of values after them.
    roles = zip(structures.roles(found.kind.spec), found.kind.leaves, strict=True)
    if any(role == "flag" for role, _ in [each for each in roles if isinstance(each[1], Leaf)][:count]):
        raise refusal(
            "a dict or a set has keys that a tensor decides, and None among them",
            "let a number that no key has stand for None, such as -1",
        )
    if any(not leaf.number for leaf in found.kind.computed[:count]):
        raise refusal(
            "a dict or a set has keys that a tensor decides, and tensors among them",
            "let the keys be numbers: `int(x)` or `x.item()`",
        )


def _put(items: list[Any], element: Any, *, is_set: bool, keep: bool = False) -> DynamicList:
    """These elements and one more, which takes the place of what has its key, unless that is to be kept."""
    found, row = _forms(items, [element], more=1)
    count = keys_in(found, is_set=is_set)
    hit = _hits(found, row, count)
    is_new = hit.any().logical_not()
    place = torch.where(is_new, found.count, hit.to(torch.int64).argmax())
    at = torch.arange(found.kind.capacity) == place
    buffers = [
        torch.where(beside(at.logical_and(is_new) if keep or number < count else at, buffer), new[:1], buffer)
        for number, (buffer, new) in enumerate(zip(found.buffers, row.buffers, strict=True))
    ]
    total = host_scalars.as_host_scalar(found.count + is_new.to(torch.int64))
    return DynamicList(found.kind, buffers, total).sharing([found])


def _looked_up(table: Any, key: Any) -> tuple[DynamicList, torch.Tensor]:
    """The elements of a table that has some, and which one has a key."""
    (found,) = _forms(whole(table))
    keys, row = _forms([found if type(table) is set else part_of(found, 0)], [key])
    return found, _hits(keys, row, len(keys.buffers))


def contains(table: Any, key: Any) -> Any:
    """`key in table`."""
    if not table:
        return False
    return host_scalars.as_host_scalar(_looked_up(table, key)[1].any())


def _position(hit: torch.Tensor) -> torch.Tensor:
    return hit.to(torch.int64).argmax()


def get_item(table: Any, key: Any) -> Any:
    """`table[key]`."""
    if isinstance(table, Counter):
        return get(table, key, 0)
    if type(table) is defaultdict and table.default_factory is not None:
        return set_default(table, key, _made(table, key))
    if not table:
        raise runtime_asserts.raised(KeyError)
    return from_origin(_chosen(*_values_hit(table, key)), key, segments(table))


def _values_hit(table: Any, key: Any) -> tuple[DynamicList, torch.Tensor]:
    """The values of a dict, and which one has a key, which is one of its own."""
    found, hit = _looked_up(table, key)
    runtime_asserts.require(hit.any(), KeyError(), holds=True)
    return part_of(found, 1), hit


def _made(table: defaultdict[Any, Any], key: Any) -> Any:
    """What the factory of a table gives for a key, which is called where the key is not there alone."""
    factory = table.default_factory
    is_pure = getattr(factory, "__module__", "") == builtins.__name__
    if is_pure or not table:
        return trace.operators().call(factory)
    found, hit = _looked_up(table, key)
    # By its own name: what a branch may change is looked for in what its function holds.
    return conditional.choose(
        hit.any(), lambda: _chosen(part_of(found, 1), hit), lambda: trace.operators().call(factory)
    )


def _chosen(values: DynamicList, hit: torch.Tensor) -> Any:
    element = at_position(values, _position(hit))
    effects.note_element(element)
    return element


def set_item(table: Any, key: Any, value: Any) -> None:
    """`table[key] = value`."""
    held = whole(table)
    found = _put(held, pair(key, unwrap_present(value)), is_set=False)
    _note_names(found, [*held, value])
    _note_placed([*held, value])
    _fill(table, found)


def _note_placed(held: list[Any]) -> None:
    """Remember what a dict is given that can be changed: it has copies of it from now on."""
    for each in held:
        if type(each) is not DynamicList:
            effects.note_placed(each)


def _note_names(found: DynamicList, held: list[Any]) -> None:
    """Remember that eager has tensors among some values in a dict, and not copies of them."""
    copies = [each for each, leaf in zip(found.buffers, found.kind.computed, strict=True) if not leaf.number]
    for copy in copies:
        for each in structures.tensors_in(held):
            if not host_scalars.is_host_scalar(each):
                rebinding.note(rebinding.Pair(copy, each))


def get(table: Any, key: Any, default: Any = None) -> Any:
    """`table.get(key, default)`."""
    if not table:
        return default
    found, hit = _looked_up(table, key)
    value = _or(part_of(found, 1), hit, default)
    # What `get` finds, and `[key]` finds, is there alike.
    return from_origin(value, key, segments(table)) if default is None else value


def _or(values: DynamicList, hit: torch.Tensor, default: Any) -> Any:
    """The value that is hit, or another one where none is."""
    try:
        both = dynamic_list_methods.whole([values, default])
    except Incompatible:
        both = None
    if default is None or both is None:
        found = conditional.choose(hit.any(), lambda: at_position(values, _position(hit)), lambda: default)
        effects.note_element(found, (default,))
        return found
    element = at_position(both, torch.where(hit.any(), _position(hit), values.count))
    effects.note_element(element, (default,))
    return element


def set_default(table: Any, key: Any, default: Any = None) -> Any:
    """`table.setdefault(key, default)`."""
    _set_absent(table, key, default)
    return _chosen(*_values_hit(table, key))


def _set_absent(table: Any, key: Any, value: Any) -> None:
    """`table[key] = value` where the key is not there."""
    held = whole(table)
    found = _put(held, pair(key, unwrap_present(value)), is_set=False, keep=True)
    _note_names(found, [*held, value])
    _note_placed([*held, value])
    _fill(table, found)


def _removed(table: Any, found: DynamicList, hit: torch.Tensor) -> None:
    """Take the element that is hit out of a table, if one is."""
    places = torch.arange(found.kind.capacity)
    at = torch.where(hit.any(), _position(hit), found.kind.capacity)
    rest = rows_at(found, places + (places >= at).to(torch.int64), found.count - hit.any().to(torch.int64))
    _note_names(rest, [found])
    _fill(table, rest)


def pop(table: Any, key: Any, default: Any = _ABSENT) -> Any:
    """`table.pop(key)`, with or without a default."""
    if not table:
        if default is _ABSENT:
            raise runtime_asserts.raised(KeyError)
        return default
    found, hit = _looked_up(table, key)
    if default is _ABSENT:
        runtime_asserts.require(hit.any(), KeyError(), holds=True)
        value = _chosen(part_of(found, 1), hit)
    else:
        value = _or(part_of(found, 1), hit, default)
    _removed(table, found, hit)
    return value


def delete(table: Any, key: Any) -> None:
    """`del table[key]`; a `Counter` takes a key that is not there, too."""
    if isinstance(table, Counter):
        pop(table, key, None)
    else:
        pop(table, key)


def _pop_item(table: Any, last: bool = True) -> Any:
    """`table.popitem()`, and of an ordered dict `table.popitem(last=False)`."""
    found = whole(table)[0]
    runtime_asserts.require(found.count > 0, KeyError("popitem(): dictionary is empty"), holds=True)
    place = found.count - 1 if last else torch.full((), 0, dtype=torch.int64)
    element = at_position(found, place)
    effects.note_chosen(element)
    _removed(table, found, torch.arange(found.kind.capacity) == place)
    return element


def _move_to_end(table: Any, key: Any, last: bool = True) -> None:
    """`table.move_to_end(key)`."""
    if not last:
        raise _refused_method("move_to_end(last=False)")
    set_item(table, key, pop(table, key))


def _discard(items: set[Any], key: Any) -> None:
    """`items.discard(key)`."""
    if items:
        _removed(items, *_looked_up(items, key))


def _remove(items: set[Any], key: Any) -> None:
    """`items.remove(key)`."""
    if not items:
        raise runtime_asserts.raised(KeyError)
    found, hit = _looked_up(items, key)
    runtime_asserts.require(hit.any(), KeyError(), holds=True)
    _removed(items, found, hit)


def _add(items: set[Any], key: Any) -> None:
    """`items.add(key)`."""
    _fill(items, _put(whole(items), key, is_set=True))


# Many keys at once.


def _kept(found: DynamicList, wanted: torch.Tensor) -> DynamicList:
    """The elements that are wanted, in their order."""
    order = torch.sort(wanted.logical_not().to(torch.int64), stable=True).indices
    return rows_at(found, order, wanted.sum())


def _alike(one: DynamicList, other: DynamicList, count: int) -> torch.Tensor:
    """Which elements of a list (the rows) have the keys of which of another."""
    _check_keys(one, count)
    same = _there(one)[:, None].logical_and(_there(other)[None])
    for left, right in zip(one.buffers[:count], other.buffers[:count], strict=True):
        same = same.logical_and(left[:, None] == right[None])
    return same


def distinct(items: list[Any], *, is_set: bool) -> DynamicList:
    """The first element of each key, with the last of its values."""
    (found,) = _forms(items)
    count = keys_in(found, is_set=is_set)
    same, places = _alike(found, found, count), torch.arange(found.kind.capacity)
    again = same.logical_and(places[:, None] > places[None]).any(1)
    last = torch.where(same, places[None], 0).amax(1)
    buffers = [
        buffer if number < count else buffer.index_select(0, last)
        for number, buffer in enumerate(found.buffers)
    ]
    return _kept(
        DynamicList(found.kind, buffers, found.count), _there(found).logical_and(again.logical_not())
    )


def _united(items: list[Any], others: list[Any]) -> DynamicList:
    return distinct([*items, *others], is_set=True)


def _among(items: list[Any], others: list[Any]) -> tuple[DynamicList, torch.Tensor]:
    """Some elements of sets, and which of these are among others, too."""
    if not others:
        (found,) = _forms(items)
        return found, torch.full((found.kind.capacity,), False)
    found, other = _forms(items, others)
    return found, _alike(found, other, len(found.buffers)).any(1)


def _elements(value: Any) -> list[Any]:
    """What any iterable gives, as elements of a list."""
    if type(value) in (set, *DICTS):
        return keys_of(value)
    return unbacked_items.listed(value)


def _update(items: Any, *others: Any, **more: Any) -> None:
    """`items.update(*others)`, of a set or a dict."""
    is_set = type(items) is set
    for other in others:
        if isinstance(items, Counter):
            if more:
                raise _refused_method("update(key=...)")
            _add_counts(items, _counts_of(other))
            continue
        new = _elements(other) if is_set or type(other) not in DICTS else segments(other)
        if new:
            _fill(items, distinct([*whole(items), *new], is_set=is_set))
    for key, value in more.items():
        set_item(items, key, value)


def _counts_of(value: Any) -> list[Any]:
    """What a `Counter` adds: the pairs of a dict, and each element of another iterable once."""
    return segments(value) if type(value) in DICTS else [*map(_counted, _elements(value))]


def _add_counts(table: Any, counts: list[Any]) -> None:
    """Add pairs of a key and a count to a `Counter`."""
    if not counts:
        return
    (found,) = _forms([*whole(table), *counts])
    keys, numbers = part_of(found, 0), part_of(found, 1)
    same = _alike(keys, keys, len(keys.buffers))
    totals = torch.where(same, numbers.buffers[0][None], 0).sum(1)
    summed = DynamicList(found.kind, (*keys.buffers, totals), found.count)
    _fill(table, distinct([summed], is_set=False))


def _counted(element: Any) -> Any:
    """An element, or all of a dynamic list, beside the number 1."""
    if type(element) is not DynamicList:
        return pair(element, 1)
    (one,) = _forms([pair(pytree.tree_unflatten([0] * element.kind.spec.num_leaves, element.kind.spec), 1)])
    kind = dynamic_list.Kind(
        element.kind.capacity, one.kind.spec, (*element.kind.leaves, one.kind.leaves[-1])
    )
    ones = torch.full((element.kind.capacity,), 1)
    return DynamicList(kind, (*element.buffers, ones), element.count)


def table_of(kind: type, elements: Any) -> Any:
    """`kind(elements)`, of a set, a dict (of pairs) or a `Counter`."""
    made = kind()
    if kind is Counter:
        _add_counts(made, [*map(_counted, elements)])
    else:
        _fill(made, distinct(elements, is_set=kind is set))
    return made


def combined(name: str, left: Any, right: Any) -> Any:
    """`left | right` and its kin, of sets, or `|` of dicts."""
    # What a `Counter` has of these compares counts.
    if type(left) is not type(right) or (type(left) is not set and name != "or_") or type(left) is Counter:
        raise _refused_method(name)
    made = left.copy()
    if name == "or_":
        _update(made, right)
        return made
    if name not in ("sub", "and_"):
        raise _refused_method(name)
    if left:
        found, there = _among(whole(left), whole(right))
        wanted = there if name == "and_" else there.logical_not()
        _fill(made, _kept(found, _there(found).logical_and(wanted)))
    return made


def combine(name: str, left: Any, right: Any) -> Any:
    """`left |= right` and its kin."""
    if name == "or_" and type(left) is not Counter:
        _update(left, right)
        return left
    found = segments(combined(name, left, right))
    left.clear()
    left.update(found)
    return left


def equal(left: Any, right: Any) -> Any:
    """`left == right` of two sets."""
    if type(left) is not set or type(right) is not set:
        if type(left) is not type(right):
            return False
        raise _refused_method("==")
    return ordered("le", left, right) & (length(left) == length(right))


def ordered(name: str, left: Any, right: Any) -> Any:
    """`left <= right` and its kin, of two sets."""
    if type(left) is not set or type(right) is not set:
        raise _refused_method(name)
    if name in ("ge", "gt"):
        return ordered({"ge": "le", "gt": "lt"}[name], right, left)
    if not left:
        return length(right) > 0 if name == "lt" else True
    found, there = _among(whole(left), whole(right))
    within = host_scalars.as_host_scalar(torch.logical_or(there, _there(found).logical_not()).all())
    return within if name == "le" else within & (length(left) < length(right))


def length(table: Any) -> Any:
    """`len(table)`."""
    return dynamic_list_methods.length(whole(table))


def keys_of(table: Any) -> list[Any]:
    """The keys, as a list whose length a tensor decides."""
    if type(table) is set or not is_dynamic_table(table):
        return whole(table) if type(table) is set else list(table)
    return [part_of(whole(table)[0], 0)]


def ordered_keys(table: Any) -> list[Any]:
    """The keys in the order in which Python gives them.

    Raises:
        ExportFailed: They are a set's, whose order follows from their hashes.
    """
    if type(table) is set:
        raise refusal(
            "the order of a set is asked for whose elements a tensor decides",
            "go through `sorted(items)`, or keep a dict (`items[x] = True`), which has the order of its keys",
        )
    return keys_of(table)


def _values(table: Any) -> list[Any]:
    return [part_of(whole(table)[0], 1)]


def values_by(key: Any, items: Any) -> list[Any] | None:
    """What `table.get` gives of each key of a table, where `items` are these; else None."""
    table = getattr(key, "__self__", None)
    if not is_dynamic_table(table) or getattr(key, "__name__", "") not in ("get", "__getitem__"):
        return None
    (keys,) = keys_of(table)
    is_own = len(items) == 1 and all(map(operator.is_, keys.buffers, getattr(items[0], "buffers", ())))
    return _values(table) if is_own else None


def _most_common(table: Any, n: Any = None) -> Any:
    """`table.most_common(n)` of a `Counter`."""
    items = trace.operators().call(sorted, [*whole(table)], key=operator.itemgetter(1), reverse=True)
    return items if n is None else dynamic_list_methods.opened(items)[:n]


def _part(table: Any, key: Any) -> Any:
    """The value of a key, which is changed where it is if it can be."""
    values, hit = _values_hit(table, key)
    element = at_position(values, _position(hit))
    if not effects.holds_containers(element):
        return get_item(table, key)

    def change_value(change: Callable[[Any], Any]) -> Any:
        # A copy of it takes its place.
        effects.check_copies(element, table)
        given = change(element)
        set_item(table, key, element)
        return given

    return Chosen(element, (), change_value)


def part_by_default(function: Function, key: Any, default: Any) -> Any:
    """`table.setdefault(key, default)`, of which an element or a method is taken at once."""
    table: Any = getattr(function, "__self__", None)
    key = known_key(key)
    if type(table) not in DICTS or not _is_of_a_run(table, key):
        return trace.operators().call(function, key, default)
    _set_absent(table, key, default)
    return _part(table, key)


class OpenedDict(Opened):
    """A dict, as what an index is applied to.

    Attributes:
        has_key: Whether the key that is set is one that the dict has.
    """

    has_key = False

    def part(self, index: Any) -> Any:
        """The element, of which an element or a method is taken at once."""
        index = self._there(index)
        if not self._is_of_a_run(index):
            return super().part(index)
        if type(self.items) is defaultdict and self.items.default_factory is not None:
            _set_absent(self.items, index, _made(self.items, index))
        if type(self.items) is Counter or not is_dynamic_table(self.items):
            return self[index]
        return _part(self.items, index)

    def __getitem__(self, index: Any) -> Any:
        index = self._there(index)
        return get_item(self.items, index) if self._is_of_a_run(index) else super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        index = known_key(index)
        if self.is_filled(index):
            set_item(self.items, index, value)
        else:
            super().__setitem__(index, value)

    def __delitem__(self, index: Any) -> None:
        index = known_key(index)
        if self.is_filled(index):
            delete(self.items, index)
        else:
            super().__delitem__(index)

    def _there(self, index: Any) -> Any:
        """A key that is read, which is no None where the dict has none."""
        if isinstance(index, OptionalValue) and None not in self.items:
            index.require_optional(KeyError(None))
            return known_key(index.payload_of_optional)
        return known_key(index)

    def is_filled(self, index: Any) -> bool:
        """Whether the graph is to hold the keys, where an element is set or deleted."""
        return not self.has_key and _is_of_a_run(self.items, index) and not _keeps_its_keys(self.items, index)

    def _is_of_a_run(self, index: Any) -> bool:
        # A plain dict is asked by what stands for an index into its values.
        is_plain = type(self.items) is dict and self.items and not isinstance(index, tuple)
        return is_dynamic_table(self.items) or (is_traced_key(index) and not is_plain)


def _keeps_its_keys(table: Any, key: Any) -> bool:
    """Whether a dict is one of the model's own, and has every key that may be set from the start."""
    if type(table) is not dict or not table or is_dynamic_table(table) or not effects.is_of_module(table):
        return False
    keys = chosen_object.parts(key)[0] if type(key) is ChosenObject else host_scalars.choices(key)
    return bool(keys) and all(each in table for each in keys)


def opened(value: Any) -> Any:
    """A value, as what an index is applied to."""
    return OpenedDict(value) if type(value) in DICTS else dynamic_list_methods.opened(value)


def augmented(opened: Any, index: Any, change: Callable[[Any], Any]) -> bool:
    """`table[index] += value`; whether it is a dict whose keys a tensor decides."""
    index = known_key(index)
    if not isinstance(opened, OpenedDict) or not opened.is_filled(index):
        return False
    table = opened.items
    if type(table) is dict and table and not is_dynamic_table(table) and not isinstance(index, tuple):
        opened.has_key = True  # else Python raises
        return False
    if type(table) is defaultdict and table.default_factory is not None:
        value = get(table, index, _made(table, index))
    else:
        value = opened[index]
    if is_dynamic_table(table):
        (found,) = whole(table)
        for each, leaf in zip(found.buffers, found.kind.computed, strict=True):
            if not leaf.number:
                rebinding.refuse_lost(each)
    set_item(table, index, change(value))
    return True


def _refused_method(name: str) -> Exception:
    return refusal(
        f"`{name}` of a dict or a set whose keys a tensor decides",
        "use `in`, `get`, `add`, `[key]`, `items()` or `sorted`, or work on a tensor",
    )


# Methods that are asked for a key, and those of a table whose keys a tensor decides.
_BY_KEY: Final[dict[str, Function]] = {
    "get": get,
    "setdefault": set_default,
    "pop": pop,
    "move_to_end": _move_to_end,
    "__getitem__": get_item,
    "__setitem__": set_item,
    "__delitem__": delete,
    "__contains__": contains,
    "add": _add,
    "discard": _discard,
    "remove": _remove,
}
_OF_A_RUN: Final[dict[str, Function]] = {
    "keys": keys_of,
    "values": _values,
    "items": whole,
    "popitem": _pop_item,
    "update": _update,
    "union": lambda items, *others: _combined_all("or_", items, others),
    "difference": lambda items, *others: _combined_all("sub", items, others),
    "intersection": lambda items, *others: _combined_all("and_", items, others),
    "issubset": lambda items, other: ordered("le", items, _as_set(other)),
    "issuperset": lambda items, other: ordered("ge", items, _as_set(other)),
    "most_common": _most_common,
    "total": lambda table: dynamic_list_methods.total(_values(table)),
}
_LEFT: Final = frozenset({"clear", "copy"})


def _as_set(value: Any) -> Any:
    if type(value) is set:
        return value
    elements = _elements(value)
    return table_of(set, elements) if elements else set()


def _combined_all(name: str, items: Any, others: Iterable[Any]) -> Any:
    for other in others:
        items = combined(name, items, _as_set(other))
    return items


def method(function: Any) -> Function | None:
    """What stands for a method of a dict or a set, where Python's own would hash a traced key."""
    table: Any = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    if table is dict and name == "fromkeys":
        return _from_keys
    if type(table) not in (set, *DICTS) or name in _LEFT:
        return None
    if name in _BY_KEY and not (type(table) is set and name == "pop"):
        by_key = _BY_KEY[name]

        def either(*args: Any, **kwargs: Any) -> Any:
            args = (*map(known_key, args[:1]), *args[1:])
            if not args or not _is_of_a_run(table, args[0]):
                # A key that is known may not be there: Python's own, or what a dict does with sizes.
                return _plain(function)(*args, **kwargs)
            is_plain = type(table) is dict and not is_dynamic_table(table) and table
            if name == "get" and is_plain and type(args[0]) is ChosenObject:
                return args[0].asked(lambda each: function(each, *args[1:]))
            if name == "get" and is_plain and not isinstance(args[0], tuple):
                return _plain(function)(*args, **kwargs)
            return by_key(table, *args, **kwargs)

        return either
    if name == "update":
        return partial(_updated, function, table)
    if is_dynamic_table(table):
        return partial(_OF_A_RUN.get(name, partial(_refuse_of, name)), table)
    if type(table) is set and name in _OF_A_RUN:

        def of_others(*others: Any) -> Any:
            if any(map(_is_of_elements, others)):
                return _OF_A_RUN[name](table, *others)
            return function(*others)

        return of_others
    return None


def _refuse_of(name: str, *_: object, **__: object) -> Any:
    raise _refused_method(name)


def _plain(function: Function) -> Function:
    return dynamic_list_methods.method(function) or size_keys.method(function) or function


def _updated(function: Function, table: Any, *others: Any, **more: Any) -> Any:
    if is_dynamic_table(table) or any(map(_is_of_elements, others)):
        return _update(table, *others, **more)
    return function(*others, **more)


def _is_of_elements(value: Any) -> bool:
    """Whether the elements of an iterable are known to a run only."""
    if is_dynamic_table(value) or unbacked_items.of(value) is not None:
        return True
    if isinstance(value, dict):
        return False
    return isinstance(value, list | tuple) and any(map(is_traced_key, value))


_IN_ANY_ORDER: Final = frozenset({sorted, sum, min, max, any, all})
_IN_ORDER: Final = frozenset({list, tuple, enumerate, zip, iter, reversed, map, filter, deque})
# Builtins that take a table for what it is.
_TAKING: Final = frozenset(
    {len, bool, set, dict, isinstance, type, id, callable, getattr, setattr, hasattr, print}
)


def as_argument(function: Any, value: Any, *, by_key: bool) -> Any:
    """A value, as what one of Python's functions goes through, which may compare `by_key`.

    Raises:
        ExportFailed: The function would take such a dict or set for another one.
    """
    if not is_dynamic_table(value):
        return value
    if isinstance(function, functools.partial):
        # torch.export puts its own forms of `min` and `max` into builtins.
        function = function.keywords.get("real_callable", function)
    if (
        getattr(function, "__module__", None) != "builtins"
        or getattr(function, "__self__", builtins) is not builtins
    ):
        return ordered_keys(value) if function is deque else value
    if function in _IN_ANY_ORDER and not by_key:
        return keys_of(value)
    if function in _IN_ANY_ORDER:  # of what is equal by a key, the first counts
        return ordered_keys(value)
    if function in _IN_ORDER:
        return ordered_keys(value)
    if function not in _TAKING:
        raise _refused_method(function.__name__)
    return value


def listed(value: Any) -> Any:
    """The keys of a dict that only a run knows, as a list; any other value itself."""
    return ordered_keys(value) if is_dynamic_table(value) else value


def made(kind: type, value: Any = ()) -> Any:
    """`set(value)`, `dict(value)` of pairs, or `Counter(value)`, of a list of elements."""
    value = list(value) if isinstance(value, Iterator) else value
    if kind is Counter and is_dynamic_table(value) and type(value) in DICTS:
        counts: Counter[Any] = Counter()
        _add_counts(counts, segments(value))
        return counts
    if kind is dict and is_dynamic_table(value) and type(value) in DICTS:
        return dict(value)
    elements = _elements(value) if _is_of_elements(value) else value
    keys = elements if kind is not dict else [each[0] for each in elements if isinstance(each, tuple)]
    if dynamic_list.is_dynamic_list(elements) or (
        isinstance(keys, Sequence) and any(map(is_traced_key, keys))
    ):
        return table_of(kind, list(elements))
    has_sizes = isinstance(keys, list) and kind is not Counter and any(map(size_keys.is_size_key, keys))
    return _of_sizes(kind, value) if has_sizes else kind(value)


def _from_keys(keys: Any, value: Any = None) -> dict[Any, Any]:
    """`dict.fromkeys(keys, value)`."""
    elements = _elements(keys)
    if dynamic_list.is_dynamic_list(elements):
        elements = unbacked_items.mapped(lambda each: (each, value), elements)
    else:
        elements = [(each, value) for each in elements]
    found: dict[Any, Any] = made(dict, elements)
    return found


def _of_sizes(kind: type, elements: list[Any]) -> Any:
    """`kind(elements)`, where torch gives sizes among the keys no hash."""
    made = kind()
    for each in elements:
        if kind is dict:
            key, value = each
            made[size_keys.own_key(made, key)] = value
        elif size_keys.find(made, each) is size_keys.ABSENT:
            made.add(each)
    return made
