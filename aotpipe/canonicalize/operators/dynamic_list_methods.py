"""What Python and torch do with a list whose length, or an index into which, only a run of the graph knows.

`opened(items)` stands for such a list where it is indexed; any other value stands for itself. Tensors and
numbers of one form in a list, a tuple or a dict are stacked, and the element is selected from the stack; an
element of modules or functions is one that calls the right one, by branches.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.alias import effects, rebinding
from aotpipe.canonicalize.operators import conditional, size_keys
from aotpipe.canonicalize.trace import decisions, runtime_asserts, torch_functions
from aotpipe.canonicalize.values import host_scalars, trace
from aotpipe.canonicalize.values.abstract_values import Incompatible, Leaf
from aotpipe.canonicalize.values.chosen_object import ChosenObject, is_object
from aotpipe.canonicalize.values.dynamic_list import (
    DynamicList,
    abstract_list,
    beside,
    is_dynamic_list,
    slots,
)
from aotpipe.canonicalize.values.optional_values import OptionalValue
from aotpipe.canonicalize.values.trace import refusal

_STACK = "give its elements one form, stack them, and index the tensor"


def whole(items: list[Any]) -> DynamicList:
    """All elements of a growing list as one."""
    if len(items) == 1:
        (only,) = items
        assert isinstance(only, DynamicList)
        return only
    abstract = abstract_list([items], slots(items))
    assert abstract is not None
    assert abstract.fitted is not None
    (found,) = abstract.fitted(items)
    assert isinstance(found, DynamicList)
    return found


def length(items: Sequence[Any]) -> Any:
    """`len(items)`, a traced number."""
    total: Any = 0
    for each in items:
        total = total + (each.count if type(each) is DynamicList else 1)
    if isinstance(total, torch.Tensor) and isinstance(room := slots(items), int):
        host_scalars.note_upper_bound(total, room)
    return total


def opened(value: Any) -> Any:
    """A value, as what an index is applied to."""
    if isinstance(value, _Chosen):
        return value
    is_empty = type(value) in (list, tuple, dict) and not value
    return _Opened(value) if is_empty or is_dynamic_list(value) or is_indexed(value) else value


class _Opened:
    def __init__(self, items: Any) -> None:
        self._items = items

    def __getitem__(self, index: Any) -> Any:
        element = self._read(index)
        if not self._is_plain(index):
            effects.note_chosen(element, _values(self._items))
        return element

    def part(self, index: Any) -> Any:
        """The element, of which an element or a method is taken at once."""
        element = self._read(index)
        if self._is_plain(index) or not effects.holds_containers(element):
            return element
        return _Chosen(element, _values(self._items), functools.partial(self._change, element, index))

    def _change(self, element: Any, index: Any, change: Callable[[Any], Any]) -> Any:
        if is_dynamic_list(self._items):
            given = change(element)
            set_element(self._items, index, element)
            return given
        # Functions of the elements, in which a branch finds what it may change.
        changes = [_applied(change, each) for each in _values(self._items)]
        return call_chosen(changes, _place(self._items, index), (), {})

    def _read(self, index: Any) -> Any:
        ends = (index.start, index.stop, index.step) if isinstance(index, slice) else ()
        if ends and (is_dynamic_list(self._items) or any(map(torch_functions.is_traced, ends))):
            return _sliced(list(self._items), *ends)
        if is_dynamic_list(self._items):
            return get(self._items, index)
        if self._is_traced(index):
            return get_element(self._items, index)
        try:
            return self._items[self._key(index)]
        except LookupError as caught:
            error = caught
            # The path that leads here raises; it may be one that no call takes.
            raise runtime_asserts.raised(lambda: error) from None

    def __setitem__(self, index: Any, value: Any) -> None:
        if self._is_plain(index) or isinstance(self._items, (tuple, *_OF_MODULES)):
            self._items[self._key(index)] = value
        else:
            set_element(self._items, index, value)

    def __delitem__(self, index: Any) -> None:
        if self._is_plain(index):
            del self._items[self._key(index)]
        else:
            popped(self._items, index)

    def _key(self, index: Any) -> Any:
        return size_keys.own_key(self._items, index) if isinstance(self._items, dict) else index

    def _is_traced(self, index: Any) -> bool:
        # As the key of a dict, a tensor is the object that it is, unless it stands for a number.
        is_tensor = isinstance(index, torch.Tensor) and not host_scalars.is_host_scalar(index)
        is_traced = torch_functions.is_traced(index) and not (isinstance(self._items, dict) and is_tensor)
        if is_traced and not self._items:
            if isinstance(self._items, dict):
                raise host_scalars.as_key()
            raise runtime_asserts.raised(lambda: IndexError("list index out of range"))
        return is_traced

    def _is_plain(self, index: Any) -> bool:
        return _is_known(self._items, index) if is_dynamic_list(self._items) else not self._is_traced(index)


def _applied(change: Callable[[Any], Any], element: Any) -> Callable[[], Any]:
    return lambda: change(element)


class _Chosen:
    """An element of a list or dict that a tensor chooses, as long as it has no name.

    It is read from a copy, and changed where it is.

    Attributes:
        element: The copy.
        among: The containers of which it is one.
        change: Calls a function with the element itself; takes the function.
    """

    def __init__(
        self, element: Any, among: Sequence[Any], change: Callable[[Callable[[Any], Any]], Any]
    ) -> None:
        self.element = element
        self.among = among
        self.change = change

    def __getitem__(self, index: Any) -> Any:
        inner = opened(self.element)[index]
        effects.note_chosen(inner, self.among)
        return inner

    def __setitem__(self, index: Any, value: Any) -> None:
        self.change(lambda element: opened(element).__setitem__(index, value))

    def __delitem__(self, index: Any) -> None:
        self.change(lambda element: opened(element).__delitem__(index))

    def part(self, index: Any) -> Any:
        """The element's own element, of which an element or a method is taken at once."""
        inner = part(opened(self.element), index)
        copied = inner.element if isinstance(inner, _Chosen) else inner
        if not effects.holds_containers(copied):
            return inner

        def change(changed: Callable[[Any], Any]) -> Any:
            def within(element: Any) -> Any:
                found = part(opened(element), index)
                return found.change(changed) if isinstance(found, _Chosen) else changed(found)

            return self.change(within)

        return _Chosen(copied, self.among, change)

    def __getattr__(self, name: str) -> Any:
        if name not in _CHANGING:
            return getattr(self.element, name)

        def method(*args: Any, **kwargs: Any) -> Any:
            return self.change(lambda each: trace.operators().call(getattr(each, name), *args, **kwargs))

        return method


# The methods of lists, dicts, deques and counters that change them.
_CHANGING: Final = frozenset(
    "append appendleft clear extend extendleft insert move_to_end pop popitem popleft remove reverse rotate "
    "setdefault sort subtract update".split()
)


def part(value: Any, index: Any) -> Any:
    """`value[index]` of what is `opened`, of which an element or a method is taken at once."""
    return value.part(index) if isinstance(value, _Opened | _Chosen) else value[index]


def changed_in_place(container: Any, index: Any, change: Callable[[Any], Any]) -> bool:
    """Change `container[index]` in place if it is a container that a tensor chooses; whether it is."""
    chosen = container.part(index) if isinstance(container, _Opened | _Chosen) else None
    if not isinstance(chosen, _Chosen) or isinstance(chosen.element, tuple):
        return False
    chosen.change(change)
    return True


def _values(items: Any) -> list[Any]:
    return [*items.values()] if isinstance(items, (dict, *_OF_NAMES)) else [*items]


def _place(items: Any, index: Any) -> torch.Tensor:
    """Where in a list or a dict the element stands that a traced number or text chooses."""
    if isinstance(items, (dict, *_OF_NAMES)) and type(index) is ChosenObject:
        return _of_key(list(items), index)
    number = host_scalars.item(torch_functions.as_tensor(index))
    if number.dtype.is_floating_point and not isinstance(items, dict):
        raise TypeError(f"{type(items).__name__} indices must be integers or slices")
    if isinstance(items, dict):
        return _of_key(list(items), number)
    return _in_range(number, len(items)).clamp(0, len(items) - 1)


_OF_MODULES: Final = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ParameterList)
_OF_NAMES: Final = (torch.nn.ModuleDict, torch.nn.ParameterDict)


def is_indexed(value: Any) -> bool:
    """Whether a value is one whose elements may be chosen by an index that only a run knows."""
    return type(value) in (list, tuple, dict, *_OF_MODULES, *_OF_NAMES) and len(value) > 0


def get_element(value: Any, index: Any) -> Any:
    """`value[index]`, `index` a traced number."""
    position, items = _place(value, index), _values(value)
    decisions.expression("index")
    return _element_or_object(items, position)


def _of_key(keys: Sequence[Any], number: Any) -> torch.Tensor:
    if type(number) is ChosenObject:
        places = {key: place for place, key in enumerate(keys)}
        position: torch.Tensor = number.number_in(lambda each: places.get(each, -1))
        runtime_asserts.require(position >= 0, KeyError(), holds=True)
        return position.clamp_min(0)
    if not all(isinstance(key, int) for key in keys):
        raise refusal("a dict whose keys are no numbers is asked for one that a tensor decides", _STACK)
    found: torch.Tensor = torch.tensor(keys) == number
    runtime_asserts.require(found.any(), KeyError(), holds=True)
    return found.to(torch.int64).argmax()


def _in_range(number: torch.Tensor, count: Any) -> torch.Tensor:
    """An index into so many elements, counted from the first, which the program asserts to be one."""
    number = number.to(torch.int64)
    position = torch.where(number < 0, number + count, number)
    inside = (position >= 0).logical_and(position < count)
    runtime_asserts.require(inside, IndexError("list index out of range"), holds=True)
    return position


def _of_one_form(items: list[Any], more: Any) -> tuple[DynamicList, DynamicList]:
    """The elements of a list, and one more that may take the place of any, as dynamic lists of one kind."""
    try:
        abstract = abstract_list([items, [*items, more]], slots(items) + 1)
    except Incompatible as error:
        said = f"a list is indexed by what a tensor decides, and {error}"
        raise refusal(said, _STACK, error.code) from None
    if abstract is None or abstract.fitted is None:
        raise refusal("a list is indexed by what a tensor decides, and its elements are no tensors", _STACK)
    (found,), (other,) = abstract.fitted(items), abstract.fitted([more])
    return found, other


def _as_one(items: list[Any]) -> DynamicList:
    """The elements of any list as one."""
    return whole(items) if is_dynamic_list(items) else _of_one_form(items, items[0] if items else 0)[0]


def _element(items: list[Any], position: torch.Tensor) -> Any:
    # In eager it is one of them.
    held = [leaf for leaf in pytree.tree_leaves(items) if isinstance(leaf, torch.Tensor)]
    return _selected(_as_one(items), position, held)


def set_element(items: Any, index: Any, value: Any) -> None:
    """`items[index] = value` of a list or a dict, where only a run knows its length, or which one it is."""
    is_dynamic = is_dynamic_list(items)
    if isinstance(index, slice):
        raise refusal("a slice of a list whose length a tensor decides is assigned", _STACK, "list-grows")
    keys: Any = list(items) if isinstance(items, dict) else range(len(items))
    held = _values(items)
    found, new = _of_one_form(held, value)
    if isinstance(items, dict):
        position = _of_key(keys, index if type(index) is ChosenObject else _whole_number(index))
    else:
        position = _in_range(_whole_number(index), found.count if is_dynamic else len(items))
    at = torch.arange(found.kind.capacity) == position
    buffers = [
        torch.where(beside(at, buffer), row[:1], buffer)
        for buffer, row in zip(found.buffers, new.buffers, strict=True)
    ]
    result = DynamicList(found.kind, buffers, found.count)
    if is_dynamic:
        items[:] = [result]
        return
    names = [leaf for leaf in pytree.tree_leaves([held, value]) if isinstance(leaf, torch.Tensor)]
    for place, key in enumerate(keys):
        items[key] = _selected(result, host_scalars.as_int64(place), names)
        effects.note_chosen(items[key], [*held, value])


def element_chosen(found: list[Any], position: torch.Tensor) -> Any:
    """The value at a position of those that a function gives of each of several objects."""
    if isinstance(found[0], bool) and found.count(found[0]) == len(found):
        return found[0]
    element = _element_or_object(found, position)
    effects.note_chosen(element, found)
    return element


def _element_or_object(items: list[Any], position: torch.Tensor) -> Any:
    is_called = all(callable(each) and not isinstance(each, torch.Tensor) for each in items)
    return (
        ChosenObject(items, position)
        if is_called or all(map(is_object, items))
        else _element(items, position)
    )


def call_chosen(items: Sequence[Callable[..., Any]], position: torch.Tensor, args: Any, kwargs: Any) -> Any:
    """Call that one of several functions that stands at a position."""

    def pick(low: int, high: int) -> Any:
        if high - low == 1:
            return trace.operators().call(items[low], *args, **kwargs)
        middle = (low + high) // 2
        return conditional.choose(position < middle, lambda: pick(low, middle), lambda: pick(middle, high))

    return pick(0, len(items))


def get(items: list[Any], index: Any) -> Any:
    """`items[index]`."""
    if _is_known(items, index):
        return items[index]
    found = whole(items)
    return at_position(found, _in_range(_whole_number(index), found.count))


def _sliced(items: list[Any], start: Any, stop: Any, step: Any) -> list[Any]:
    """`items[start:stop:step]`, where only a run knows the length or the ends."""
    if step not in (None, 1) and (start, stop, step) != (None, None, -1):
        raise refusal(
            "a list whose length a tensor decides is sliced with a step", "stack it first", "list-grows"
        )
    found = _as_one(items)
    size = host_scalars.as_int64(length(items))

    def end(given: Any, otherwise: torch.Tensor) -> torch.Tensor:
        if given is None:
            return otherwise
        number = _whole_number(given)
        return torch.minimum(torch.where(number < 0, number + size, number).clamp_min(0), size)

    first = end(start, torch.full((), 0, dtype=torch.int64))
    count = (end(stop, size) - first).clamp_min(0)
    at = torch.arange(found.kind.capacity)
    return [_rows_at(found, size - 1 - at if step == -1 else first + at, count)]


def _is_known(items: list[Any], index: Any) -> bool:
    """Whether the element is one at the ends of a list that is known as it is."""
    if not isinstance(index, int):
        return False
    near, at = (items, index) if index >= 0 else (items[::-1], -index - 1)
    return at < len(near) and not is_dynamic_list(near[: at + 1])


def at_position(found: DynamicList, position: Any) -> Any:
    """The element at a traced position that is known to be in range."""
    return _selected(found, position.clamp(0, found.kind.capacity - 1))


def _selected(found: DynamicList, position: Any, names: Sequence[torch.Tensor] | None = None) -> Any:
    """The element at a position, which may alias these tensors, or the buffer where none are given."""
    place = position.reshape(1)

    def taken(buffer: torch.Tensor) -> torch.Tensor:
        element = buffer.index_select(0, place).squeeze(0)
        for each in (buffer,) if names is None else names:
            rebinding.note(rebinding.Pair(element, each))
        return element

    return found.element(taken)


def popped(items: list[Any], index: Any = -1) -> Any:
    """`items.pop(index)`."""
    is_last = isinstance(index, int) and index == -1
    if isinstance(items[-1], DynamicList) and is_last:
        last = items[-1]
        value = get([last], -1)
        effects.note_chosen(value)
        items[-1] = DynamicList(last.kind, last.buffers, last.count - 1)
        return value
    if is_last or (isinstance(index, int) and index >= 0 and not is_dynamic_list(items[: index + 1])):
        return items.pop(index)
    found = _as_one(items)
    position = _in_range(_whole_number(index), found.count)
    value = at_position(found, position)
    effects.note_chosen(value)
    at = torch.arange(found.kind.capacity)
    items[:] = [_rows_at(found, at + (at >= position).to(torch.int64), found.count - 1)]
    return value


def _whole_number(index: Any) -> torch.Tensor:
    if isinstance(index, int):
        return host_scalars.as_int64(index)
    return host_scalars.item(torch_functions.as_tensor(index))


def _rows_at(found: DynamicList, places: torch.Tensor, count: torch.Tensor) -> DynamicList:
    """The elements at these places, of which so many count."""
    rows = places.clamp(0, found.kind.capacity - 1)
    there = torch.arange(found.kind.capacity) < count
    buffers = [
        torch.where(beside(there, each), each.index_select(0, rows), 0).to(each.dtype)
        for each in found.buffers
    ]
    return DynamicList(found.kind, buffers, host_scalars.as_host_scalar(count.clone()))


def sorted_(items: Any, *, key: Any = None, reverse: Any = False) -> Any:
    """`sorted(items, key=key, reverse=reverse)`."""
    items = items if is_dynamic_list(items) else list(items)
    found_keys = items
    if key is not None and is_dynamic_list(items):
        found_keys = trace.operators().mapped(key, items)
    elif key is not None:
        found_keys = [trace.operators().call(key, each) for each in items]
    leaves = pytree.tree_leaves(found_keys)
    if not is_dynamic_list(items) and (not any(map(torch_functions.is_traced, leaves)) or len(items) < 2):
        return [items[at] for at in sorted(range(len(items)), key=found_keys.__getitem__, reverse=reverse)]
    by = _as_one(found_keys)
    if any(buffer.dim() > 1 for buffer in by.buffers) or torch_functions.is_traced(reverse):
        raise refusal("a list is sorted by tensors of several elements", "give a `key` that is one number")
    size = by.kind.capacity if is_dynamic_list(items) else len(items)
    there = torch.arange(size) < by.count if is_dynamic_list(items) else torch.full((size,), True)
    order = torch.arange(size)
    # By what counts least first: a stable sort keeps that order among what is equal.
    for buffer in reversed(by.buffers):
        column = buffer[:size]
        if column.dtype.is_floating_point:
            ordered = torch.logical_or(column == column, there.logical_not()).all()
            runtime_asserts.add_assert(ordered, "a list with NaN in it is sorted: Python has no order for it")
        order = _sorted_by(column, order, descending=bool(reverse))
    order = _sorted_by(there.logical_not(), order, descending=False)
    found = _as_one(items)
    if is_dynamic_list(items):
        return [_rows_at(found, order, found.count)]
    held = [leaf for leaf in pytree.tree_leaves(items) if isinstance(leaf, torch.Tensor)]
    return [_selected(found, order[place], held) for place in range(size)]


def _sorted_by(column: torch.Tensor, order: torch.Tensor, *, descending: bool) -> torch.Tensor:
    ranks = column.index_select(0, order).to(torch.int64 if column.dtype == torch.bool else column.dtype)
    return order.index_select(0, torch.sort(ranks, stable=True, descending=descending).indices)


def _places_of(items: list[Any], value: Any, name: str) -> torch.Tensor:
    """Which elements of a list of numbers equal a value."""
    _, buffer, there = _numbers([_as_one(items)], f"`{name}`")
    return torch.logical_and(there[: slots(items)], buffer[: slots(items)] == value)


def bisected(items: list[Any], value: Any, *, right: bool) -> torch.Tensor:
    """`bisect.bisect(items, value)`, of numbers that are sorted."""
    _, buffer, there = _numbers([_as_one(items)], "`bisect`")
    size = slots(items)
    ascends = torch.logical_or(buffer[: size - 1] <= buffer[1:size], there[1:size].logical_not()).all()
    runtime_asserts.add_assert(ascends, "`bisect` takes a list that is sorted")
    before = buffer[:size] <= value if right else buffer[:size] < value
    return host_scalars.as_host_scalar(torch.logical_and(there[:size], before).sum())


def index_of(items: list[Any], value: Any, name: str = "index") -> torch.Tensor:
    """`items.index(value)`."""
    there = _places_of(items, value, name)
    runtime_asserts.require(there.any(), ValueError("the value is not in list"), holds=True)
    first = torch.where(there, torch.arange(len(there)), len(there)).amin(0)
    return host_scalars.as_host_scalar(first.clone())


def total(items: Iterable[Any], start: Any = 0) -> Any:
    """`sum(items, start)`."""
    for each in items:
        if type(each) is not DynamicList:
            start = start + each
            continue
        flags = torch.arange(each.kind.capacity) < each.count

        def summed(buffer: torch.Tensor, flags: torch.Tensor = flags) -> torch.Tensor:
            zero = torch.zeros((), dtype=buffer.dtype)
            return torch.where(beside(flags, buffer), buffer, zero).sum(0).to(buffer.dtype)

        start = start + each.element(summed)
    return start


def _numbers(items: Iterable[Any], functions: str) -> tuple[DynamicList, torch.Tensor, torch.Tensor]:
    """A growing list of numbers, its buffer, and a mask of the filled places."""
    found = whole(list(items))
    if not found.kind.spec.is_leaf() or len(found.buffers) != 1 or found.buffers[0].dim() != 1:
        raise refusal(
            f"{functions} of a list whose length a tensor decides, of more than numbers",
            "compare its elements first",
        )
    return found, found.buffers[0], torch.arange(found.kind.capacity) < found.count


def folded(items: Iterable[Any], *, decides: bool) -> torch.Tensor:
    """`any(items)` where a true element decides, else `all(items)`."""
    _, buffer, there = _numbers(items, "`any` or `all`")
    if decides:
        return torch.logical_and(there, buffer != 0).any()
    return torch.logical_or(there.logical_not(), buffer != 0).all()


def extreme(items: list[Any], *, largest: bool, key: Any = None, **default: Any) -> Any:
    """`max(items, key=key, **default)` where the `largest` is asked for, else `min(...)`."""
    if default:
        filled = length(items) > 0
        return conditional.choose(
            filled, lambda: extreme(items, largest=largest, key=key), lambda: default["default"]
        )
    keys = items if key is None else trace.operators().mapped(key, items)
    by, buffer, there = _numbers(keys, "`min` or `max`")
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
    return at_position(whole(items), position)


def method(function: Any) -> Callable[..., Any] | None:
    """What stands for a method of a growing list, where Python's own would take its parts for elements.

    So does what stands for a dict's `get`, which is asked for a traced number.
    """
    items: Any = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    if isinstance(items, dict) and name == "get":
        return _get_of(items, size_keys.method(function) or function)
    if type(items) is not list or not (name in _METHODS or name in _OF_GROWING):
        return None
    if name == "pop" and not items:
        raise runtime_asserts.raised(lambda: IndexError("pop from empty list"))
    if name not in _METHODS:
        return functools.partial(_OF_GROWING[name], items) if is_dynamic_list(items) else None

    def either(*args: Any, **kwargs: Any) -> Any:
        is_traced = any(map(torch_functions.is_traced, pytree.tree_leaves([items, args])))
        if name != "sort" and (len(args) != 1 or not (is_traced or is_dynamic_list(items))):
            return function(*args, **kwargs)
        return _METHODS[name](items, *args, **kwargs)

    return either


def _get_of(table: dict[Any, Any], function: Callable[..., Any]) -> Callable[..., Any]:
    def get(key: Any, *default: Any) -> Any:
        among = {each: value for each, value in table.items() if isinstance(each, int | float)}
        if not host_scalars.is_host_scalar(key) or type(table) is not dict or not among:
            return function(key, *default)
        there = (torch.tensor(list(among)) == key).any()
        found = conditional.choose(there, lambda: get_element(among, key), lambda: (*default, None)[0])
        effects.note_chosen(found.payload if isinstance(found, OptionalValue) else found, among.values())
        return found

    return get


def _count(items: list[Any], value: Any) -> torch.Tensor:
    return host_scalars.as_host_scalar(_places_of(items, value, "count").sum())


def _remove(items: list[Any], value: Any) -> None:
    popped(items, index_of(items, value, "remove"))


def _sort(items: list[Any], **kwargs: Any) -> None:
    items[:] = sorted_(items, **kwargs)


def _reverse(items: list[Any]) -> None:
    items[:] = _sliced(items, None, None, -1)


def _insert(items: list[Any], at: int, value: Any) -> None:
    if at < 0 or is_dynamic_list(items[:at]):
        _refuse("insert")
    items.insert(at, value)


def _refuse(name: str, *_: object) -> NoReturn:
    raise refusal(
        f"`{name}` of a list whose length a tensor decides", "stack it, and work on the tensor", "list-grows"
    )


# Methods that look at the elements of any list, and those that a list has otherwise while it grows.
_METHODS: Final[dict[str, Callable[..., Any]]] = {
    "index": index_of,
    "count": _count,
    "remove": _remove,
    "sort": _sort,
}
_OF_GROWING: Final[dict[str, Callable[..., Any]]] = {
    "pop": popped,
    "copy": list,
    "reverse": _reverse,
    "insert": _insert,
    **{name: functools.partial(_refuse, name) for name in ("__setitem__", "__delitem__", "__contains__")},
}


def contains(items: Iterable[Any], item: Any) -> torch.Tensor:
    """`item in items`, of numbers."""
    _, buffer, there = _numbers(items, "`in`")
    return torch.logical_and(there, buffer == item).any()


def equal(left: Any, right: Any) -> torch.Tensor:
    """`left == right` of lists of numbers, of which a tensor decides the length."""
    (one, a, there), (other, b, _) = (_numbers([_as_one(each)], "`==`") for each in (left, right))
    shared = min(len(a), len(b))
    same = torch.logical_or(there[:shared].logical_not(), a[:shared] == b[:shared]).all()
    return host_scalars.as_host_scalar(torch.logical_and(one.count == other.count, same))


def _number_in(leaf: Any) -> Any:
    if isinstance(leaf, bool | int | float):
        return leaf
    raise refusal("`torch.tensor` of a list that grows, of more than numbers", "append tuples of numbers")


def as_tensor(items: Iterable[Any], dtype: Any) -> torch.Tensor:
    """`torch.tensor(items)` of a list that grows, of numbers or of tuples or lists of as many numbers."""
    found = whole(list(items))
    flat = found.kind.spec.type in (tuple, list) and all(
        each.is_leaf() for each in found.kind.spec.children()
    )
    if flat:
        columns = iter(found.buffers)
        parts = [
            next(columns) if isinstance(leaf, Leaf) else torch.full((slots([found]),), _number_in(leaf))
            for leaf in found.kind.leaves
        ]
        wide = functools.reduce(host_scalars.promoted, (part.dtype for part in parts))
        buffer = torch.stack([part.to(wide) for part in parts], 1)
    else:
        found, buffer, _ = _numbers([found], "`torch.tensor`")
    wanted = buffer.dtype if dtype is None else dtype
    if dtype is None and wanted != torch.get_default_dtype():
        # Of no numbers, torch makes floats.
        runtime_asserts.add_assert(found.count > 0, f"torch.tensor([]) is no {wanted}: give it a dtype")
    elif flat:
        runtime_asserts.add_assert(
            found.count > 0, "torch.tensor([]) has one dim: make it of a list that is filled"
        )
    return buffer[: found.count].to(wanted, copy=True)


def _as_index(part: Any) -> Any:
    if not is_dynamic_list(part):
        return part
    found, buffer, _ = _numbers(part, "an index")
    return buffer[: found.count]


def called(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A torch function of a list that grows."""
    if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
        parts = args[1] if isinstance(args[1], tuple) else (args[1],)
        index = tuple(map(_as_index, parts))
        return func(args[0], index[0] if len(index) == 1 else index, *args[2:])
    function = _FUNCTIONS.get(func)
    items = args[0] if args else kwargs.pop("tensors", None)
    if function is None or not isinstance(items, list | tuple):
        raise refusal(
            f"`{getattr(func, '__name__', func)}` is called with a list whose length a tensor decides",
            "stack the list first",
            "list-grows",
        )
    return function(list(items), *args[1:], **kwargs)


def _rows(items: list[Any]) -> torch.Tensor:
    found = whole(items)
    if len(found.buffers) != 1 or not found.kind.spec.is_leaf():
        raise refusal("a list of several tensors per element is stacked", "append each to a list of its own")
    runtime_asserts.require(found.count > 0, RuntimeError("expected a non-empty list of Tensors"), holds=True)
    # What is made of them is written in place by itself.
    rows: torch.Tensor = found.buffers[0][: found.count].clone()
    return rows


def _stack(items: list[Any], dim: int = 0) -> torch.Tensor:
    return _rows(items).movedim(0, dim)


def _cat(items: list[Any], dim: int = 0, *, axis: int | None = None) -> torch.Tensor:
    rows = _rows(items)
    dim = dim if axis is None else axis
    dim = dim + rows.dim() - 1 if dim < 0 else dim
    return rows.movedim(0, dim).flatten(dim, dim + 1)


def _vstack(items: list[Any]) -> torch.Tensor:
    rows = _rows(items)
    return rows if rows.dim() <= 2 else rows.flatten(0, 1)


def _hstack(items: list[Any]) -> torch.Tensor:
    rank = _rows(items).dim() - 1
    return _stack(items) if not rank else _cat(items, 0 if rank == 1 else 1)


_FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    torch.stack: _stack,
    torch.cat: _cat,
    torch.concat: _cat,
    torch.concatenate: _cat,
    torch.vstack: _vstack,
    torch.hstack: _hstack,
}
