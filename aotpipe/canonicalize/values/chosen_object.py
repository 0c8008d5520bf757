"""One of several texts, members of an enum, modules or functions, where only a run of the graph knows which.

The graph computes its number among them. It is compared, called, read and set by branches, and is a key of
dicts; what makes a text of it, or hands it to a library, is refused.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from enum import Enum
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final, NoReturn

import torch

from aotpipe.canonicalize.values import trace
from aotpipe.canonicalize.values.trace import refusal

_PLAIN = (str, bytes, Enum)


class ChosenObject:
    """One of `_items`: that at the traced number `_position`."""

    def __init__(self, items: Sequence[Any], position: torch.Tensor) -> None:
        vars(self).update(_items=tuple(items), _position=position)
        trace.watch_calls()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the chosen one."""
        return trace.operators().call_chosen(self._items, self._position, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # of a protocol of Python's
        return self.asked(lambda each: getattr(each, name))

    def __setattr__(self, name: str, value: Any) -> None:
        sets = [_setting(each, name, value) for each in self._items]
        trace.operators().call_chosen(sets, self._position, (), {})

    def __eq__(self, other: object) -> Any:
        return self.asked(lambda each: each == other)

    def __ne__(self, other: object) -> Any:
        return self.asked(lambda each: each != other)

    def __add__(self, other: Any) -> Any:
        return self.asked(lambda each: each + other)

    def __radd__(self, other: Any) -> Any:
        return self.asked(lambda each: other + each)

    def __getitem__(self, index: Any) -> Any:
        return self.asked(lambda each: each[index])

    def __neg__(self) -> Any:
        return self.asked(operator.neg)

    def number(self) -> Any:
        """The number that the chosen one is, where they are members of an `IntEnum`."""
        return self.asked(lambda each: each + 0)

    def __len__(self) -> Any:
        return self.asked(len)

    def _refuse(self, *_: object) -> NoReturn:
        raise refusal(
            f"a tensor decides which of these a value is, and a library takes it: {listed(self)}",
            "call it in each branch, or keep what is looked up in a dict",
            "paths-differ",
        )

    __bool__ = __iter__ = __index__ = __contains__ = _refuse
    __hash__: Any = _refuse

    def __format__(self, _: str) -> str:
        return trace.text()

    def __str__(self) -> str:
        return trace.text()

    __repr__ = __str__

    def asked(self, ask: Callable[[Any], Any]) -> Any:
        """What a function gives of the chosen one."""
        found: list[Any] = []
        failed: dict[int, Exception] = {}
        for number, each in enumerate(self._items):
            try:
                found.append(ask(each))
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                failed[number] = error
                found.append(error)
        kept = next((each for number, each in enumerate(found) if number not in failed), None)
        if len(failed) == len(found):
            raise failed[0]
        for number, raised in failed.items():
            found[number] = kept
            trace.operators().require(self._position != number, raised)
        return trace.operators().element_chosen(found, self._position)

    def number_in(self, number_of: Callable[[Any], int]) -> torch.Tensor:
        """What a function that numbers the objects gives of the chosen one, as a tensor."""
        table = torch.stack([torch.full((), number_of(each), dtype=torch.int64) for each in self._items])
        return table.index_select(0, self._position.reshape(1)).squeeze(0)


def _of_two(function: Callable[[Any, Any], Any], *, swapped: bool = False) -> Callable[[Any, Any], Any]:
    """An operator of the chosen one and another value."""
    if swapped:
        return lambda self, other: self.asked(lambda each: function(other, each))
    return lambda self, other: self.asked(lambda each: function(each, other))


for _name in ("lt", "le", "gt", "ge"):
    setattr(ChosenObject, f"__{_name}__", _of_two(getattr(operator, _name)))
for _name in ("sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"):
    _function = getattr(operator, f"__{_name}__")
    setattr(ChosenObject, f"__{_name}__", _of_two(_function))
    setattr(ChosenObject, f"__r{_name}__", _of_two(_function, swapped=True))


def parts(chosen: ChosenObject) -> tuple[tuple[Any, ...], torch.Tensor]:
    """The objects, and the number of the chosen one; any attribute is the chosen one's own."""
    held = vars(chosen)
    return held["_items"], held["_position"]


_MOST_COMBINED: Final = 256


def combined(chosen: Sequence[ChosenObject], of: Callable[..., Any]) -> Any:
    """What a function that has no effect gives of several chosen objects: one of those of all combinations.

    Raises:
        ExportFailed: They are too many.
    """
    held = [parts(each) for each in chosen]
    if math.prod(len(items) for items, _ in held) > _MOST_COMBINED:
        raise refusal(trace.TEXT, trace.TEXT_HINT, trace.TEXT_FROM_TENSOR)
    place: Any = 0
    for items, position in held:
        place = place * len(items) + position
    found = [of(*each) for each in itertools.product(*(items for items, _ in held))]
    return trace.operators().element_chosen(found, place)


def listed(chosen: ChosenObject) -> str:
    """The objects, for a message."""
    return " or ".join(str(each) if isinstance(each, Enum) else repr(each) for each in parts(chosen)[0])


def _setting(item: Any, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(item, name, value)


def is_object(value: Any) -> bool:
    """Whether a value is one of which only a run may know which of several it is.

    A function that a branch makes holds tensors of that branch.
    """
    if isinstance(value, FunctionType):
        return "<" not in value.__qualname__
    return isinstance(value, (*_PLAIN, torch.nn.Module, BuiltinFunctionType, ChosenObject))


def is_plain(value: Any) -> bool:
    """Whether a value is a text or a member of an enum, or one of several."""
    return isinstance(value, _PLAIN) or type(value) is ChosenObject


def options(values: Sequence[Any], is_same: Callable[[object, object], bool]) -> tuple[Any, ...] | None:
    """The different objects that values may be, in turn; None where they are no such objects."""
    if not all(is_object(each) or each is None for each in values) or not any(map(is_object, values)):
        return None
    if any(each is None for each in values) and not all(
        is_plain(each) for each in values if each is not None
    ):
        return None
    found: list[Any] = []
    for value in values:
        for each in parts(value)[0] if type(value) is ChosenObject else (value,):
            if not any(is_same(each, other) for other in found):
                found.append(each)
    return tuple(found)
