"""A value that may be None: it goes with a traced flag, and what is known of flags goes with paths.

An `OptionalValue` is used as what it holds. Where eager would raise on None, it asserts that it is there.

A `Partial` is a dict of which only a run of the graph knows some keys, such as a batch whose optional keys
may be missing: the value of such a key is an `OptionalValue`. `in` gives its flag, `get` the `OptionalValue`,
and `[key]` the value, with an assert that it is there. What goes over all keys is refused.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, KeysView
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.values import host_scalars, trace
from aotpipe.canonicalize.values.trace import refusal

_NO_DEFAULT: Final = object()


class OptionalValue:
    """A value that is None unless a traced flag says otherwise; it is used as what it holds.

    Its own names are long, so that they hide no attribute of an object that it holds.

    Attributes:
        flag_of_optional: The flag, a bool of no dimensions.
        payload_of_optional: The value; zeros where there is none.
        is_key_of_optional: Whether it is of a key that is missing, where it is not there.
        name_of_optional: What it is called where an assert on it fails.
        origin_of_optional: The index, and what was indexed, of an element: where another one of the same
            origin is known to be there, so is this one.
    """

    def __init__(
        self, present: torch.Tensor, payload: Any, *, is_key: bool = False, name: str = "a value"
    ) -> None:
        self.flag_of_optional = present
        self.payload_of_optional = payload
        self.is_key_of_optional = is_key
        self.name_of_optional = name
        self.origin_of_optional: tuple[Any, ...] = ()
        trace.watch_calls()

    @property
    def is_optional_present(self) -> bool:
        """Whether the path that is traced is taken only where it is there."""
        # Kept by the trace: what this object holds itself may be a state of the model.
        present = trace.part(_Present)
        return id(self) in present or any(
            _is_of(self.origin_of_optional, each.origin_of_optional) for each in present.values()
        )

    @is_optional_present.setter
    def is_optional_present(self, known: bool) -> None:
        present = trace.part(_Present)
        present.pop(id(self), None)
        if known:
            present[id(self)] = self

    def require_optional(self, error: Exception) -> None:
        """Eager raises an error where it is not there."""
        if not self.is_optional_present:
            self.is_optional_present = trace.operators().require(self.flag_of_optional, error)

    def need_optional(self) -> Any:
        """The value, for what takes no None."""
        self.require_optional(TypeError(f"{self.name_of_optional} is None"))
        return self.payload_of_optional

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = pytree.tree_map_only(cls, cls.need_optional, (args, kwargs or {}))
        return func(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.payload_of_optional, name)
        if not name.startswith("__") and not trace.part(_Looks).count:
            self.require_optional(AttributeError(f"None has no {name}"))
        return found

    def __getitem__(self, index: Any) -> Any:
        return self.need_optional()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.need_optional()[index] = value

    def __delitem__(self, index: Any) -> None:
        del self.need_optional()[index]

    def __iter__(self) -> Any:
        return iter(self.need_optional())

    def __len__(self) -> int:
        return len(self.need_optional())

    def __bool__(self) -> NoReturn:
        raise RuntimeError("data-dependent: whether a value is None is known to a run of the graph only")


def _is_of(one: Any, other: Any) -> bool:
    """Whether two elements were taken by the same index of the same things."""
    if type(one) is tuple and type(other) is tuple:
        return len(one) == len(other) > 0 and all(map(_is_of, one, other))
    return one is other or (type(one) is type(other) and isinstance(one, int | str) and bool(one == other))


def from_origin(value: Any, index: Any, held: Iterable[Any]) -> Any:
    """Note which index of which things an element is; gives the element.

    A tensor that is written in place is another index afterwards: only numbers, texts and tuples of these
    count.
    """
    parts = index if type(index) is tuple else (index,)
    is_fixed = all(host_scalars.is_host_scalar(each) or isinstance(each, int | str) for each in parts)
    if isinstance(value, OptionalValue) and is_fixed:
        value.origin_of_optional = (index, *held)
    return value


@dataclass(slots=True)
class _Looks:
    """How many `looking` run now."""

    count: int = 0


@contextmanager
def looking() -> Iterator[None]:
    """Inside, an attribute is read to see what it holds: eager does not read it there."""
    looks = trace.part(_Looks)
    looks.count += 1
    try:
        yield
    finally:
        looks.count -= 1


class _Present(dict[int, OptionalValue]):
    """Those that are known to be there, by identity."""


class _Implied(dict[int, tuple[object, tuple[OptionalValue, ...], tuple[OptionalValue, ...]]]):
    """Flags by identity, kept alive, with the values that are there if one is true, and if it is false."""


@contextmanager
def assuming(flag: object, *, holds: bool) -> Iterator[None]:
    """Inside, what is there by a flag, or by its negation, is known to be there if `holds` says so."""
    found = assume(flag, holds=holds)
    try:
        yield
    finally:
        for optional in found:
            optional.is_optional_present = False


def assume(flag: object, *, holds: bool) -> list[OptionalValue]:
    """Know from here on what is there by a flag; gives those of which that was not known."""
    true, false = _implied_by(flag)
    implied = true if holds else false
    found = [optional for optional in implied if not optional.is_optional_present]
    for optional in found:
        optional.is_optional_present = True
    return found


def _implied_by(flag: object) -> tuple[tuple[OptionalValue, ...], tuple[OptionalValue, ...]]:
    """The values that are there if a flag is true, and if it is false."""
    if isinstance(flag, OptionalValue):
        return (flag,), ()  # None is false
    known = trace.part(_Implied).get(id(flag))
    return ((), ()) if known is None else known[1:]


def presence(optional: OptionalValue, *, wanted: bool) -> Any:
    """Whether a value is there, or whether it is None, as a traced flag."""
    flag = optional.flag_of_optional.clone() if wanted else optional.flag_of_optional.logical_not()
    implied = trace.part(_Implied)
    implied[id(flag)] = (flag, (optional,), ()) if wanted else (flag, (), (optional,))
    return flag


def imply(flag: object, *parts: object, negated: bool = False, all_of: bool = True) -> Any:
    """A flag that was computed of others, with what it says of values; gives the flag.

    It is true only if all parts are (`all_of`), or false only if all are; `negated` is the negation of its
    only part.
    """
    implied = trace.part(_Implied)
    known = [_implied_by(each) for each in parts]
    true: tuple[OptionalValue, ...] = tuple(optional for each in known for optional in each[0])
    false: tuple[OptionalValue, ...] = tuple(optional for each in known for optional in each[1])
    if negated:
        true, false = false, true
    elif len(parts) > 1:
        true, false = (true, ()) if all_of else ((), false)
    if true or false:
        implied[id(flag)] = (flag, true, false)
    return flag


def imply_joined(flag: object, test: object, then: object, other: object) -> None:
    """Note what a variable says of values that a branch sets to `then` where its test holds, else to `other`.

    Where a path sets it to a known truth, it has the other truth on the other path alone.
    """
    if not isinstance(flag, torch.Tensor) or flag.dtype != torch.bool:
        return
    true, false = _implied_by(test)
    implied: dict[bool, list[OptionalValue]] = {True: [], False: []}
    for known, of_test, varying in ((then, false, other), (other, true, then)):
        if isinstance(known, bool):
            truth = not known
            of_other = _implied_by(varying) if isinstance(varying, torch.Tensor) else ((), ())
            implied[truth] += (*of_test, *of_other[0 if truth else 1])
    if any(implied.values()):
        trace.part(_Implied)[id(flag)] = (flag, tuple(implied[True]), tuple(implied[False]))


def _of_payloads(function: Callable[..., Any], step: int = 1) -> Callable[..., Any]:
    return lambda *operands: function(
        *(each.need_optional() if isinstance(each, OptionalValue) else each for each in operands[::step])
    )


_INFIX: Final = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor")
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "abs", "invert", "pos", *_INFIX):
    setattr(OptionalValue, f"__{_name.strip('_')}__", _of_payloads(getattr(operator, _name)))
for _name in _INFIX:
    setattr(OptionalValue, f"__r{_name.strip('_')}__", _of_payloads(getattr(operator, _name), -1))


def _unhashable(value: OptionalValue) -> NoReturn:
    said = f"{value.name_of_optional} is a key of a dict or a set, and may be None, where a tensor decides"
    raise refusal(said, "ask `is not None` first", "paths-differ")


OptionalValue.__hash__ = _unhashable  # type: ignore[assignment,method-assign]  # it compares as what it holds


class Partial(dict[Any, Any]):
    """See the module; `unsure` are the keys that may be missing.

    `**partial` gives the `OptionalValue`s, by which `of_keywords` knows the keys again.
    """

    def __init__(self, items: Any = (), unsure: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.unsure = set(unsure)

    def has(self, key: Any) -> Any:
        """`key in self`: a bool, or the flag that says so."""
        if not dict.__contains__(self, key):
            return False
        optional = self._unsure(key)
        return True if optional is None else presence(optional, wanted=True)

    def _unsure(self, key: Any) -> OptionalValue | None:
        """The value of a key, if it may be missing."""
        value = dict.get(self, key)
        return (
            value
            if key in self.unsure and isinstance(value, OptionalValue) and not value.is_optional_present
            else None
        )

    def __getitem__(self, key: Any) -> Any:
        value = dict.__getitem__(self, key)
        if key in self.unsure and isinstance(value, OptionalValue):
            value.require_optional(KeyError(key))
            return value.payload_of_optional
        return value

    def __contains__(self, key: object) -> bool:
        found = self.has(key)
        if isinstance(found, bool):
            return found
        raise RuntimeError("data-dependent: whether a key is there is known to a run of the graph only")

    def get(self, key: Any, default: Any = None) -> Any:
        """The value; an `OptionalValue` in place of None."""
        optional = self._unsure(key)
        if optional is None:
            return self[key] if dict.__contains__(self, key) else default
        if default is None:
            return optional
        return trace.operators().either(optional, lambda: optional.payload_of_optional, lambda: default)

    def pop(self, key: Any, default: Any = _NO_DEFAULT) -> Any:
        """The value of a key that is missing from then on."""
        if default is _NO_DEFAULT or key not in self.unsure:
            found = self[key] if default is _NO_DEFAULT else dict.get(self, key, default)
        else:
            found = self.get(key, default)
        dict.pop(self, key, None)
        return found

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value, which is there from then on."""
        self[key] = self.get(key, default)
        return dict.__getitem__(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.unsure.discard(key)
        super().__setitem__(key, value)

    def copy(self) -> Partial:
        """A dict of the same keys and values."""
        return Partial(((key, dict.__getitem__(self, key)) for key in dict.__iter__(self)), self.unsure)

    def keys(self) -> Any:
        """What `in` is asked of."""
        return Keys(self)

    def items(self) -> Any:
        """All items, if all are there."""
        self._require_all()
        return {key: self[key] for key in dict.__iter__(self)}.items()

    def values(self) -> Any:
        """All values, if all are there."""
        self._require_all()
        return [self[key] for key in dict.__iter__(self)]

    def __len__(self) -> int:
        self._require_all()
        return super().__len__()

    def _require_all(self) -> None:
        if any(self._unsure(key) is not None for key in self.unsure):
            keys = ", ".join(map(repr, sorted(self.unsure, key=str)))
            raise refusal(
                f"which keys there are is known to a run of the graph only: {keys}",
                "ask for each key by its name: `key in batch`, `batch.get(key)`",
            )


class Keys(KeysView[Any]):
    """`partial.keys()`."""

    def __init__(self, of: Partial) -> None:
        super().__init__(of)
        self.of = of


def of_keywords(kwargs: dict[str, Any]) -> dict[str, Any]:
    """`**kwargs` of a function, of which some may be missing."""
    unsure = {
        key for key, value in kwargs.items() if isinstance(value, OptionalValue) and value.is_key_of_optional
    }
    return Partial(kwargs, unsure) if unsure else kwargs
