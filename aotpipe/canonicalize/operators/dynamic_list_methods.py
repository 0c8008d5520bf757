"""What Python and torch do with a list whose length, or an index into which, only a run of the graph knows.

`opened(items)` stands for such a list where it is indexed; any other value stands for itself. Tensors and
numbers of one form in a list, a tuple or a dict are stacked, and the element is selected from the stack; an
element of modules or functions is one that calls the right one, by branches.
"""

from __future__ import annotations

import copy
import functools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.alias import effects, rebinding
from aotpipe.canonicalize.operators import conditional, size_keys
from aotpipe.canonicalize.trace import decisions, runtime_asserts, torch_functions
from aotpipe.canonicalize.values import host_scalars, object_fields, structures, trace
from aotpipe.canonicalize.values.abstract_values import Incompatible, unwrap_present
from aotpipe.canonicalize.values.chosen_object import ChosenObject, is_object
from aotpipe.canonicalize.values.dynamic_list import DynamicList, beside, is_dynamic_list, slots
from aotpipe.canonicalize.values.element_kinds import OtherStructures, abstract_list
from aotpipe.canonicalize.values.optional_values import OptionalValue, from_origin
from aotpipe.canonicalize.values.trace import refusal
from aotpipe.errors import ExportFailed

_STACK = "give its elements one form, stack them, and index the tensor"


def whole(items: Sequence[Any]) -> DynamicList:
    """All elements of a growing list, or of a growing deque, as one."""
    _refuse_repeated(items)
    items = list(items)
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


def _refuse_repeated(items: Sequence[Any]) -> None:
    """Refuse `items * n` of a deque with a limit: Python repeats what stands for many elements as one."""
    if getattr(items, "maxlen", None) is not None and len(set(map(id, items))) < len(items):
        _refuse("*")


def length(items: Sequence[Any]) -> Any:
    """`len(items)`, a traced number."""
    _refuse_repeated(items)
    total: Any = 0
    for each in items:
        total = total + (each.count if type(each) is DynamicList else 1)
    if isinstance(total, torch.Tensor) and isinstance(room := slots(items), int):
        host_scalars.note_upper_bound(total, room)
        host_scalars.note_choices(total, range(room + 1))
    return total


def opened(value: Any) -> Any:
    """A value, as what an index is applied to."""
    if isinstance(value, Chosen):
        return value
    is_empty = type(value) in (list, tuple, dict) and not value
    return Opened(value) if is_empty or is_dynamic_list(value) or is_indexed(value) else value


class Opened:
    """A list, a tuple or a dict, as what an index is applied to."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def __getitem__(self, index: Any) -> Any:
        element = self._read(index)
        if not self._is_plain(index):
            if is_dynamic_list(self.items):
                effects.note_element(element)
            _note_copied(element, _values(self.items))
        return element

    def part(self, index: Any) -> Any:
        """The element, of which an element or a method is taken at once."""
        element = self._read(index)
        if self._is_plain(index) or not effects.holds_containers(element):
            return element
        if _is_one_of(element, _values(self.items)):
            return element  # on a path of its own
        return Chosen(element, _values(self.items), functools.partial(self._change, element, index))

    def _change(self, element: Any, index: Any, change: Callable[[Any], Any]) -> Any:
        if is_dynamic_list(self.items):
            effects.check_copies(element, self.items)
            given = change(element)
            set_element(self.items, index, element)
            return given
        # Functions of the elements, in which a branch finds what it may change.
        changes = [_applied(change, each) for each in _values(self.items)]
        return call_chosen(changes, _place(self.items, index), (), {})

    def _read(self, index: Any) -> Any:
        if isinstance(index, slice) and _is_of_a_run(self.items, index):
            return _sliced(list(self.items), index.start, index.stop, index.step)
        if is_dynamic_list(self.items):
            return from_origin(get(self.items, index), index, self.items)
        if self.is_traced(index):
            return from_origin(get_element(self.items, index), index, _values(self.items))
        try:
            return self.items[self._key(index)]
        except LookupError as caught:
            error = caught
            # The path that leads here raises; it may be one that no call takes.
            raise runtime_asserts.raised(lambda: error) from None

    def __setitem__(self, index: Any, value: Any) -> None:
        if self._is_plain(index) or isinstance(self.items, (tuple, *_OF_MODULES)):
            self.items[self._key(index)] = value
        else:
            set_element(self.items, index, value)

    def __delitem__(self, index: Any) -> None:
        if isinstance(index, slice) and _is_of_a_run(self.items, index):
            _delete_slice(self.items, index)
        elif self._is_plain(index):
            del self.items[self._key(index)]
        else:
            popped(self.items, index)

    def _key(self, index: Any) -> Any:
        return size_keys.own_key(self.items, index) if isinstance(self.items, dict) else index

    def is_traced(self, index: Any) -> bool:
        """Whether only a run knows an index."""
        # As the key of a dict, a tensor is the object that it is, unless it stands for a number.
        is_tensor = isinstance(index, torch.Tensor) and not host_scalars.is_host_scalar(index)
        is_traced = torch_functions.is_traced(index) and not (isinstance(self.items, dict) and is_tensor)
        if is_traced and not self.items:
            is_dict = isinstance(self.items, dict)
            error = KeyError() if is_dict else IndexError("list index out of range")
            raise runtime_asserts.raised(lambda: error)
        return is_traced

    def _is_plain(self, index: Any) -> bool:
        return _is_known(self.items, index) if is_dynamic_list(self.items) else not self.is_traced(index)


def _applied(change: Callable[[Any], Any], element: Any) -> Callable[[], Any]:
    return lambda: change(element)


class Chosen:
    """An element of a list or dict that a tensor chooses, as long as it has no name.

    It is read from a copy, and changed where it is.

    Attributes:
        copy_of_chosen: The copy; an object's own attributes may have any other name.
        chosen_among: The containers of which it is one.
        change_chosen: Calls a function with the element itself; takes the function.
    """

    def __init__(
        self, element: Any, among: Sequence[Any], change: Callable[[Callable[[Any], Any]], Any]
    ) -> None:
        vars(self).update(copy_of_chosen=element, chosen_among=among, change_chosen=change)

    def __getitem__(self, index: Any) -> Any:
        inner = opened(self.copy_of_chosen)[index]
        effects.note_chosen(inner, self.chosen_among)
        return inner

    def __setitem__(self, index: Any, value: Any) -> None:
        self.change_chosen(lambda element: opened(element).__setitem__(index, value))

    def __delitem__(self, index: Any) -> None:
        self.change_chosen(lambda element: opened(element).__delitem__(index))

    def part(self, index: Any) -> Any:
        """The element's own element, of which an element or a method is taken at once."""
        inner = part(opened(self.copy_of_chosen), index)
        copied = inner.copy_of_chosen if isinstance(inner, Chosen) else inner
        if not effects.holds_containers(copied):
            return inner

        def change(changed: Callable[[Any], Any]) -> Any:
            def within(element: Any) -> Any:
                found = part(opened(element), index)
                return found.change_chosen(changed) if isinstance(found, Chosen) else changed(found)

            return self.change_chosen(within)

        return Chosen(copied, self.chosen_among, change)

    def __getattr__(self, name: str) -> Any:
        own = getattr(type(self.copy_of_chosen), name, None)
        is_object = object_fields.is_structure(self.copy_of_chosen)
        if is_object and isinstance(own, property):
            return self.change_chosen(lambda each: getattr(each, name))
        if name not in _CHANGING and not (is_object and callable(own)):
            found = getattr(self.copy_of_chosen, name)
            effects.note_chosen(found, self.chosen_among)
            return found

        def method(*args: Any, **kwargs: Any) -> Any:
            return self.change_chosen(
                lambda each: trace.operators().call(getattr(each, name), *args, **kwargs)
            )

        return method

    def __setattr__(self, name: str, value: Any) -> None:
        self.change_chosen(lambda each: setattr(each, name, value))


# The methods of lists, dicts, deques and counters that change them.
_CHANGING: Final = frozenset(
    "append appendleft clear extend extendleft insert move_to_end pop popitem popleft remove reverse rotate "
    "setdefault sort subtract update".split()
)


def part(value: Any, index: Any) -> Any:
    """`value[index]` of what is `opened`, of which an element or a method is taken at once."""
    return value.part(index) if isinstance(value, Opened | Chosen) else value[index]


def changed_in_place(container: Any, index: Any, change: Callable[[Any], Any]) -> bool:
    """Change `container[index]` in place if it is a container that a tensor chooses; whether it is."""
    chosen = container.part(index) if isinstance(container, Opened | Chosen) else None
    if not isinstance(chosen, Chosen) or isinstance(chosen.copy_of_chosen, tuple):
        return False
    chosen.change_chosen(change)
    return True


def written_in_place(container: Any, index: Any, change: Callable[[Any], Any]) -> bool:
    """Write the tensor of a list or a dict in place that a tensor chooses; whether its elements are tensors.

    Raises:
        ExportFailed: Another name of an element would lose the write, or some elements are numbers.
    """
    items = container.items if isinstance(container, Opened) else None
    if items is not None and is_dynamic_list(items):
        for segment in items:
            if type(segment) is DynamicList and segment.kind.spec.is_leaf():
                rebinding.refuse_lost(*segment.buffers)
        return False
    if type(items) not in (list, dict) or not container.is_traced(index):
        return False
    held = _values(items)
    are_tensors = [isinstance(each, torch.Tensor) and not host_scalars.is_host_scalar(each) for each in held]
    if not any(are_tensors):
        return False
    if not all(are_tensors):
        said = "one of tensors and numbers, which a tensor chooses, is changed in place"
        raise refusal(said, "make all of them tensors, or numbers")
    # An element may have other names: these see the write.
    position = _place(items, index)
    changed = change(selected(as_one(held), position, ()).clone())
    for place, each in enumerate(held):
        each.copy_(torch.where(position == place, changed, each))
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


def of_one_form(items: list[Any], more: Any) -> tuple[DynamicList, DynamicList]:
    """The elements of a list, and one more that may take the place of any, as dynamic lists of one kind."""
    try:
        # Of lists that Python made, each that has another length is chosen on a path of its own.
        may_nest = is_dynamic_list(items)
        abstract = abstract_list([items, [*items, more]], slots(items) + 1, may_nest=may_nest)
    except Incompatible as error:
        said = f"a list is indexed by what a tensor decides, and {error}"
        hint = error.hint if isinstance(error, OtherStructures) else _STACK
        raise refusal(said, hint, error.code) from error
    if abstract is None or abstract.fitted is None:
        raise refusal("a list is indexed by what a tensor decides, and its elements are no tensors", _STACK)
    (found,), (other,) = abstract.fitted(items), abstract.fitted([more])
    return found, other


def as_one(items: list[Any]) -> DynamicList:
    """The elements of any list as one."""
    return whole(items) if is_dynamic_list(items) else of_one_form(items, items[0] if items else 0)[0]


def _element(items: list[Any], position: torch.Tensor) -> Any:
    # In eager it is one of them.
    held = structures.tensors_in(items)
    return selected(as_one(items), position, held)


def set_element(items: Any, index: Any, value: Any) -> None:
    """`items[index] = value` of a list or a dict, where only a run knows its length, or which one it is."""
    is_dynamic = is_dynamic_list(items)
    if isinstance(index, slice):
        raise refusal("a slice of a list whose length a tensor decides is assigned", _STACK, "list-grows")
    keys: Any = list(items) if isinstance(items, dict) else range(len(items))
    held = _values(items)
    found, new = of_one_form(held, unwrap_present(value))
    if isinstance(items, dict):
        position = _of_key(keys, index if type(index) is ChosenObject else _whole_number(index))
    else:
        position = _in_range(_whole_number(index), found.count if is_dynamic else len(items))
    at = torch.arange(found.kind.capacity) == position
    buffers = [
        torch.where(beside(at, buffer), row[:1], buffer)
        for buffer, row in zip(found.buffers, new.buffers, strict=True)
    ]
    result = DynamicList(found.kind, buffers, found.count).sharing([found])
    if is_dynamic:
        effects.note_placed(value)
        refill(items, result, None)
        return
    names = structures.tensors_in([held, value])
    for place, key in enumerate(keys):
        items[key] = selected(result, host_scalars.as_int64(place), names)
        effects.note_chosen(items[key], [*held, value])


def element_chosen(found: list[Any], position: torch.Tensor) -> Any:
    """The value at a position of those that a function gives of each of several objects."""
    if isinstance(found[0], bool) and found.count(found[0]) == len(found):
        return found[0]
    if all(isinstance(each, bool) for each in found):
        # `phase is Phase.RUN` is asked at each turn of a state machine: one comparison in place of a table.
        for truth in (True, False):
            if found.count(truth) == 1:
                number = found.index(truth)
                return host_scalars.as_host_scalar(position == number if truth else position != number)
    element = _element_or_object(found, position)
    _note_copied(element, found)
    return element


def _element_or_object(items: list[Any], position: torch.Tensor) -> Any:
    is_called = all(callable(each) and not isinstance(each, torch.Tensor) for each in items)
    if is_called or all(map(is_object, items)):
        return ChosenObject(items, position)
    held = [
        each.payload_of_optional if isinstance(each, OptionalValue) else each
        for each in items
        if each is not None
    ]
    if len(items) <= _MOST_PATHS and held and all(type(each) in (list, dict, deque) for each in held):
        # A copy of one that is changed under another name is refused: the trace made anew has itself. Not of
        # an object: its attribute is a variable of the branch, of whatever object the name has after it.
        refused = runtime_asserts.refused_here()
        if refused is not None:
            return _of_path(items, position, refused)
    try:
        return _element(items, position)
    except ExportFailed as refused:
        if not isinstance(refused.__cause__, OtherStructures) or len(items) > _MOST_PATHS:
            raise
        return _of_path(items, position, refused)


# The most elements of other structures of which each gets a path.
_MOST_PATHS: Final = 8


def _of_path(items: Sequence[Any], position: torch.Tensor, refused: ExportFailed) -> Any:
    """The element itself, on a path for each."""
    if len(items) == 1:
        return items[0]
    middle = len(items) // 2
    is_before = runtime_asserts.truth_of_path(position < middle, refused)
    rest = items[:middle] if is_before else items[middle:]
    return _of_path(rest, position if is_before else position - middle, refused)


def _is_one_of(element: Any, items: Sequence[Any]) -> bool:
    return any(element is each for each in items)


def _note_copied(element: Any, among: Sequence[Any]) -> None:
    """Remember an element that a tensor chose as a copy, unless it is itself one of these."""
    if not _is_one_of(element, among):
        effects.note_chosen(element, among)


def call_chosen(items: Sequence[Callable[..., Any]], position: torch.Tensor, args: Any, kwargs: Any) -> Any:
    """Call that one of several functions that stands at a position."""

    def pick(low: int, high: int) -> Any:
        if high - low == 1:
            return trace.operators().call(items[low], *args, **kwargs)
        middle = (low + high) // 2
        return conditional.choose(position < middle, lambda: pick(low, middle), lambda: pick(middle, high))

    return pick(0, len(items))


def repeated(items: Sequence[Any], number: torch.Tensor) -> list[Any]:
    """`items * number` of a list, `number` a traced one."""
    most = max(host_scalars.choices(number), default=host_scalars.upper_bound(number))
    if most is None or is_dynamic_list(items):
        raise refusal(
            "a list is repeated as often as a tensor decides, and nothing says how often at most",
            "let it be `min(n, 100)` times, or `(100 - len(items))` times",
            "list-grows",
        )
    elements = [*items] * max(most, 0)
    if not elements:
        return []
    if any(map(effects.holds_containers, items)):
        said = "a list that holds lists or dicts is repeated as often as a tensor decides"
        raise refusal(said, "make each anew: `[[0, 0] for _ in range(n)]`", "python-object-changed")
    found = of_one_form(elements, elements[0])[0]
    for buffer, leaf in zip(found.buffers, found.kind.computed, strict=True):
        for each in pytree.tree_leaves(items) if not leaf.number else ():
            if isinstance(each, torch.Tensor):
                rebinding.note(rebinding.Pair(buffer, each))  # in eager it is this one
    count = host_scalars.as_host_scalar(number.to(torch.int64).clamp_min(0) * len(items))
    return [DynamicList(found.kind, found.buffers, count)]


def get(items: list[Any], index: Any) -> Any:
    """`items[index]`."""
    if _is_known(items, index):
        return items[index]
    found = whole(items)
    return at_position(found, _in_range(_whole_number(index), found.count))


def _sliced(items: list[Any], start: Any, stop: Any, step: Any) -> list[Any]:
    """`items[start:stop:step]`, where only a run knows the length or the ends."""
    found = as_one(items)
    at = torch.arange(found.kind.capacity)
    if isinstance(step, int) and step not in (0, 1):
        first, count = _stepped(start, stop, step, items)
        return [rows_at(found, first + at * step, count)]
    first, count = _ends(slice(start, stop, step), items)
    return [rows_at(found, first + at, count)]


def _stepped(start: Any, stop: Any, step: int, items: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Where a slice with a step begins, and how many elements it has, as `slice.indices` tells."""
    size = host_scalars.as_int64(length(items))
    lowest, highest = (torch.full((), 0), size) if step > 0 else (torch.full((), -1), size - 1)

    def end(given: Any, otherwise: torch.Tensor) -> torch.Tensor:
        if given is None:
            return otherwise
        number = _whole_number(given)
        return torch.minimum(torch.maximum(torch.where(number < 0, number + size, number), lowest), highest)

    first = end(start, lowest if step > 0 else highest)
    last = end(stop, highest if step > 0 else lowest)
    away = last - first if step > 0 else first - last
    return first, ((away + abs(step) - 1) // abs(step)).clamp_min(0)


def _is_of_a_run(items: Any, index: slice) -> bool:
    """Whether only a run knows the length of a list, or the ends of a slice."""
    ends = (index.start, index.stop, index.step)
    return is_dynamic_list(items) or any(map(torch_functions.is_traced, ends))


def _delete_slice(items: list[Any], index: slice) -> None:
    """`del items[start:stop]`."""
    found = as_one(items)
    first, count = _ends(index, list(items))
    at = torch.arange(found.kind.capacity)
    at = at + torch.where(at >= first, count, 0)
    refill(items, rows_at(found, at, found.count - count), None)


def _ends(index: slice, items: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Where a slice of a list begins, and how many elements it has."""
    if index.step not in (None, 1):
        raise refusal(
            "a list whose length a tensor decides loses a slice with a step, or is sliced with one that a "
            "tensor decides",
            "choose the elements in a comprehension: `[items[i] for i in range(len(items)) if i % 2]`",
            "list-grows",
        )
    size = host_scalars.as_int64(length(items))

    def end(given: Any, otherwise: torch.Tensor) -> torch.Tensor:
        if given is None:
            return otherwise
        number = _whole_number(given)
        return torch.minimum(torch.where(number < 0, number + size, number).clamp_min(0), size)

    first = end(index.start, torch.full((), 0, dtype=torch.int64))
    return first, (end(index.stop, size) - first).clamp_min(0)


def _is_known(items: list[Any], index: Any) -> bool:
    """Whether the element is one at the ends of a list that is known as it is."""
    if not isinstance(index, int):
        return False
    near, at = (list(items), index) if index >= 0 else (list(items)[::-1], -index - 1)
    return at < len(near) and not is_dynamic_list(near[: at + 1])


def at_position(found: DynamicList, position: Any) -> Any:
    """The element at a traced position that is known to be in range."""
    return selected(found, position.clamp(0, found.kind.capacity - 1))


def selected(found: DynamicList, position: Any, names: Sequence[torch.Tensor] | None = None) -> Any:
    """The element at a position, which may alias these tensors, or the buffer where none are given."""
    place = position.reshape(1)

    def taken(buffer: torch.Tensor) -> torch.Tensor:
        element = buffer.index_select(0, place).squeeze(0)
        for each in (buffer,) if names is None else names:
            rebinding.note(rebinding.Pair(element, each))
        return element

    return found.element(taken)


def refill(items: Any, found: DynamicList, count: int | None) -> None:
    """Let a list or a deque hold these elements, of which so many are known to be there."""
    if count is None:
        for each in items:
            if type(each) is not DynamicList:
                effects.note_placed(each)  # of which it has a copy from now on
        new = [found]
    else:
        names = structures.tensors_in(list(items))
        new = [selected(found, host_scalars.as_int64(place), names) for place in range(count)]
        for each in new:
            effects.note_chosen(each, list(items))
    items.clear()
    items.extend(new)


def popped(items: Any, index: Any = -1) -> Any:
    """`items.pop(index)`."""
    is_last = isinstance(index, int) and index == -1
    if all(type(each) is DynamicList for each in items):
        error = IndexError(f"pop from {_EMPTY[type(items)]}")
        runtime_asserts.require(length(items) > 0, error, holds=True)
    if isinstance(items[-1], DynamicList) and is_last:
        last = items[-1]
        value = get([last], -1)
        effects.note_chosen(value)
        items[-1] = DynamicList(last.kind, last.buffers, last.count - 1)
        return value
    if is_last or (isinstance(index, int) and index >= 0 and not is_dynamic_list(list(items)[: index + 1])):
        return (
            items.popleft()
            if isinstance(items, deque) and not is_last
            else items.pop(*(() if is_last else (index,)))
        )
    found = as_one(items)
    position = _in_range(_whole_number(index), found.count)
    value = at_position(found, position)
    effects.note_chosen(value)
    at = torch.arange(found.kind.capacity)
    refill(items, rows_at(found, at + (at >= position).to(torch.int64), found.count - 1), None)
    return value


# What Python says of a list without elements, and of a deque.
_EMPTY: Final[dict[type, str]] = {list: "empty list", deque: "an empty deque"}


def _whole_number(index: Any) -> torch.Tensor:
    if isinstance(index, int):
        return host_scalars.as_int64(index)
    return host_scalars.item(torch_functions.as_tensor(index))


def rows_at(found: DynamicList, places: torch.Tensor, count: torch.Tensor) -> DynamicList:
    """The elements at these places, of which so many count."""
    rows = places.clamp(0, found.kind.capacity - 1)
    there = torch.arange(found.kind.capacity) < count
    buffers = [
        torch.where(beside(there, each), each.index_select(0, rows), 0).to(each.dtype)
        for each in found.buffers
    ]
    return DynamicList(found.kind, buffers, host_scalars.as_host_scalar(count.clone())).sharing([found])


def _places_of(items: list[Any], value: Any, name: str) -> torch.Tensor:
    """Which elements of a list of numbers equal a value."""
    return _matches(as_one(items), value, name)


def _matches(found: DynamicList, value: Any, name: str) -> torch.Tensor:
    """Which elements of a list of numbers, of which some may be None, equal a value, which may be None."""
    there = torch.arange(found.kind.capacity) < found.count
    if isinstance(value, OptionalValue):
        are_none = _matches(found, None, name).logical_and(value.flag_of_optional.logical_not())
        return are_none.logical_or(
            _matches(found, value.payload_of_optional, name).logical_and(value.flag_of_optional)
        )
    if found.kind.leaves == (None,):
        return there if value is None else torch.zeros_like(there)
    flags, held = split_flags(found)
    if value is None:
        return torch.zeros_like(there) if flags is None else there.logical_and(flags.logical_not())
    _, buffer, _ = numbers([held], f"`{name}`")
    same = _equals(held, buffer, value)
    found_there: torch.Tensor = there.logical_and(same if flags is None else flags.logical_and(same))
    return found_there


def split_flags(found: DynamicList) -> tuple[torch.Tensor | None, DynamicList]:
    """Which elements of a list are there where others are None, and all elements; None where none may be."""
    spec = found.kind.spec
    if spec.type is not structures.OptionalNode:
        return None, found
    kind = replace(found.kind, spec=spec.child(1), leaves=found.kind.leaves[1:])
    return found.buffers[0], DynamicList(kind, found.buffers[1:], found.count)


def without_none(found: DynamicList, error: Exception) -> DynamicList:
    """The elements of a list, where eager raises an error of one that is None."""
    flags, held = split_flags(found)
    if flags is None:
        return found
    behind = torch.arange(found.kind.capacity) >= found.count
    runtime_asserts.require(flags.logical_or(behind).all(), error, holds=True)
    return held


def _equals(found: DynamicList, buffer: torch.Tensor, value: Any) -> Any:
    """Which elements of a buffer equal a value: one of objects has their numbers."""
    options = found.kind.computed[0].options
    if not options:
        return buffer == value

    def number_of(wanted: Any) -> int:
        return next((number for number, each in enumerate(options) if each == wanted), -1)

    number = value.number_in(number_of) if type(value) is ChosenObject else number_of(value)
    return buffer == number


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
        found = without_none(each, TypeError("unsupported operand type(s) for +: 'int' and 'NoneType'"))
        flags = torch.arange(each.kind.capacity) < each.count

        def summed(buffer: torch.Tensor, flags: torch.Tensor = flags) -> torch.Tensor:
            zero = torch.zeros((), dtype=buffer.dtype)
            # Python counts the bools that are true.
            dtype = torch.int64 if buffer.dtype == torch.bool else buffer.dtype
            return torch.where(beside(flags, buffer), buffer, zero).sum(0).to(dtype)

        start = start + found.element(summed)
    return start


def numbers(items: Iterable[Any], functions: str) -> tuple[DynamicList, torch.Tensor, torch.Tensor]:
    """A growing list of numbers, its buffer, and a mask of the filled places."""
    found = whole(list(items))
    if structures.may_lack(found.kind.spec):
        raise refusal(
            f"{functions} of a list whose length a tensor decides, in which some elements may be None",
            "leave these out first: `[each for each in items if each is not None]`",
        )
    if not found.kind.spec.is_leaf() or len(found.buffers) != 1 or found.buffers[0].dim() != 1:
        raise refusal(
            f"{functions} of a list whose length a tensor decides, of more than numbers",
            "compare its elements first",
        )
    return found, found.buffers[0], torch.arange(found.kind.capacity) < found.count


def folded(items: Iterable[Any], *, decides: bool) -> torch.Tensor:
    """`any(items)` where a true element decides, else `all(items)`."""
    flags, found = split_flags(whole(list(items)))
    _, buffer, there = numbers([found], "`any` or `all`")
    buffer = buffer if flags is None else flags.logical_and(buffer != 0)
    if decides:
        return torch.logical_and(there, buffer != 0).any()
    return torch.logical_or(there.logical_not(), buffer != 0).all()


def method(function: Any) -> Callable[..., Any] | None:
    """What stands for a method of a growing list, where Python's own would take its parts for elements.

    So does what stands for a dict's `get`, which is asked for a traced number.
    """
    items: Any = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    if isinstance(items, dict) and name == "get":
        return _get_of(items, size_keys.method(function) or function)
    if type(items) not in _EMPTY or not (name in _METHODS or name in _OF_GROWING):
        return None
    if type(items) is deque and items and not is_dynamic_list(items):
        return functools.partial(extend, items) if name == "extend" else None
    if name in ("pop", "popleft") and not items:
        raise runtime_asserts.raised(lambda: IndexError(f"pop from {_EMPTY[type(items)]}"))
    if name == "pop" and not is_dynamic_list(items):
        return functools.partial(_popped_of_python, function, items)
    if name not in _METHODS:
        own = type(items) is list and name in ("append", "extend")
        return functools.partial(_OF_GROWING[name], items) if is_dynamic_list(items) and not own else None

    def either(*args: Any, **kwargs: Any) -> Any:
        is_traced = any(map(torch_functions.is_traced, pytree.tree_leaves([items, args])))
        if (len(args) != 1 and name != "insert") or not (is_traced or is_dynamic_list(items)):
            return function(*args, **kwargs)
        return _METHODS[name](items, *args, **kwargs)

    return either


def _popped_of_python(function: Callable[..., Any], items: list[Any], *index: Any) -> Any:
    is_traced = any(map(torch_functions.is_traced, index))
    return popped(items, *index) if is_traced else function(*index)


def _get_of(table: dict[Any, Any], function: Callable[..., Any]) -> Callable[..., Any]:
    def get(key: Any, *default: Any) -> Any:
        among = {each: value for each, value in table.items() if isinstance(each, int | float)}
        if not host_scalars.is_host_scalar(key) or type(table) is not dict or not among:
            return function(key, *default)
        there = (torch.tensor(list(among)) == key).any()
        found = conditional.choose(there, lambda: get_element(among, key), lambda: (*default, None)[0])
        effects.note_chosen(found, among.values())
        return found if default else from_origin(found, key, among.values())

    return get


def _count(items: list[Any], value: Any) -> torch.Tensor:
    return host_scalars.as_host_scalar(_places_of(items, value, "count").sum())


def _remove(items: list[Any], value: Any) -> None:
    popped(items, index_of(items, value, "remove"))


def _reverse(items: Any) -> None:
    (found,) = _sliced(list(items), None, None, -1)
    refill(items, found, None)


def insert(items: Any, at: Any, value: Any) -> None:
    """`items.insert(at, value)`."""
    most = getattr(items, "maxlen", None)
    if most is not None and is_dynamic_list(items):
        error = IndexError("deque already at its maximum size")
        runtime_asserts.require(length(items) < most, error, holds=True)
    if isinstance(at, int) and not is_dynamic_list(list(items)[:at] if at >= 0 else items):
        items.insert(at, value)
        return
    count = None if is_dynamic_list(items) else len(items) + 1
    found = as_one([*items, value])
    last = found.count - 1
    given = _whole_number(at)
    position = torch.minimum(torch.where(given < 0, given + last, given).clamp_min(0), last)
    places = torch.arange(found.kind.capacity)
    rows = torch.where(places == position, last, places - (places > position).to(torch.int64))
    items.append(value)  # one of the names that an element may have
    refill(items, rows_at(found, rows, found.count), count)


def _append(items: deque[Any], value: Any) -> None:
    """`items.append(value)` of a deque, which drops the first element where it is full."""
    extend(items, [value])


def _append_bounded(items: deque[Any], values: Iterable[Any], most: int) -> None:
    found = as_one([*items, *values])
    dropped = (found.count - most).clamp_min(0)
    room = min(most, found.kind.capacity)
    moved = rows_at(found, torch.arange(found.kind.capacity) + dropped, found.count - dropped)
    kind = replace(moved.kind, capacity=room)
    refill(items, DynamicList(kind, [each[:room] for each in moved.buffers], moved.count), None)


def deque_of(values: Iterable[Any] = (), maxlen: int | None = None) -> deque[Any]:
    """`deque(values, maxlen)`, where a run may know how many values there are."""
    made: deque[Any] = deque(maxlen=maxlen)
    extend(made, values)
    return made


def deques_added(left: deque[Any], right: deque[Any]) -> deque[Any]:
    """`left + right`, which has as much room as `left`."""
    made = copy.copy(left)
    extend(made, right)
    return made


def extend(items: Any, values: Iterable[Any]) -> None:
    """`items.extend(values)`, of a list, or of a deque, which drops its first elements where it is full."""
    most = getattr(items, "maxlen", None)
    values = values if is_dynamic_list(values) else list(values)
    if most is None or not (is_dynamic_list(items) or is_dynamic_list(values)):
        items.extend(values)
    else:
        _append_bounded(items, values, most)


def _append_left(items: deque[Any], value: Any) -> None:
    if items.maxlen is not None:
        _refuse("appendleft")
    items.appendleft(value)


def _refuse(name: str, *_: object) -> NoReturn:
    raise refusal(
        f"`{name}` of a list whose length a tensor decides", "stack it, and work on the tensor", "list-grows"
    )


# Methods that look at the elements of any list, and those that a list has otherwise while it grows.
_METHODS: Final[dict[str, Callable[..., Any]]] = {
    "index": index_of,
    "count": _count,
    "remove": _remove,
    "insert": insert,
}
_OF_GROWING: Final[dict[str, Callable[..., Any]]] = {
    "pop": popped,
    "popleft": lambda items: popped(items, 0),
    "append": _append,
    "appendleft": _append_left,
    "extend": extend,
    "copy": copy.copy,
    "reverse": _reverse,
    **{
        name: functools.partial(_refuse, name)
        for name in ("__setitem__", "__delitem__", "__contains__", "rotate", "extendleft")
    },
}


def contains(items: Iterable[Any], item: Any) -> torch.Tensor:
    """`item in items`, of numbers and None."""
    return _matches(whole(list(items)), item, "in").any()


def equal(left: Any, right: Any) -> torch.Tensor:
    """`left == right` of lists of numbers, of which a tensor decides the length."""
    (one, a, there), (other, b, _) = (numbers([as_one(each)], "`==`") for each in (left, right))
    shared = min(len(a), len(b))
    same = torch.logical_or(there[:shared].logical_not(), a[:shared] == b[:shared]).all()
    return host_scalars.as_host_scalar(torch.logical_and(one.count == other.count, same))
