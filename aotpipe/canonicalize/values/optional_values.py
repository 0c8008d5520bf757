"""A value that may be None: it goes with a traced flag, and what is known of flags goes with paths.

An `OptionalValue` is used as what it holds. Where eager would raise on None, one with an `add_assert` asserts
that it is there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.values import trace


class OptionalValue:
    """A value that is None unless a traced flag says otherwise; it is used as what it holds.

    Attributes:
        present: The flag, a bool of no dimensions.
        payload: The value; zeros where there is none.
        is_key: Whether it is of a key that is missing, where it is not there.
    """

    def __init__(self, present: torch.Tensor, payload: Any, *, is_key: bool = False) -> None:
        self.present = present
        self.payload = payload
        self.is_key = is_key
        # What is called to assert that it is there, where eager would raise.
        self.add_assert: Callable[[torch.Tensor, str], bool] | None = None
        # On a path that is taken only where it is there.
        self.is_present = False
        trace.part(_Presence).is_optional = True

    def require_present(self, said: str) -> None:
        """Eager raises where it is not there."""
        if self.add_assert is not None and not self.is_present:
            self.is_present = self.add_assert(self.present, said)

    def needed(self, said: str = "TypeError: a value is None") -> Any:
        """The value, for what takes no None."""
        self.require_present(said)
        return self.payload

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = pytree.tree_map_only(cls, cls.needed, (args, kwargs or {}))
        return func(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            return getattr(self.payload, name)
        return getattr(self.needed(f"AttributeError: None has no {name}"), name)

    def __getitem__(self, index: Any) -> Any:
        return self.needed()[index]

    def __iter__(self) -> Any:
        return iter(self.needed())

    def __len__(self) -> int:
        return len(self.needed())

    def __bool__(self) -> NoReturn:
        raise RuntimeError("data-dependent: whether a value is None is known to a run of the graph only")


@dataclass(slots=True)
class _Presence:
    """What a trace knows of optional values.

    Attributes:
        is_optional: Whether there is any.
        implied: Flags by identity, kept alive: the values that are there if it is true, and if it is false.
    """

    is_optional: bool = False
    implied: dict[int, tuple[object, tuple[OptionalValue, ...], tuple[OptionalValue, ...]]] = field(
        default_factory=dict
    )


def any_optional() -> bool:
    """Whether there is any value that may be None, in the model that is traced now."""
    return trace.part(_Presence).is_optional


@contextmanager
def assuming(flag: object, *, holds: bool) -> Iterator[None]:
    """Inside, what is there by a flag, or by its negation, is known to be there if `holds` says so."""
    known = trace.part(_Presence).implied.get(id(flag))
    implied: tuple[OptionalValue, ...] = () if known is None else known[1] if holds else known[2]
    found = [optional for optional in implied if not optional.is_present]
    for optional in found:
        optional.is_present = True
    try:
        yield
    finally:
        for optional in found:
            optional.is_present = False


def presence(optional: OptionalValue, *, wanted: bool) -> Any:
    """Whether a value is there, or whether it is None, as a traced flag."""
    flag = optional.present.clone() if wanted else optional.present.logical_not()
    implied = trace.part(_Presence).implied
    implied[id(flag)] = (flag, (optional,), ()) if wanted else (flag, (), (optional,))
    return flag


def imply(flag: object, *parts: object, negated: bool = False, all_of: bool = True) -> Any:
    """A flag that was computed of others, with what it says of values; gives the flag.

    Args:
        flag: It is true only if all parts are, or false only if all are.
        parts: The others.
        negated: It is the negation of its only part.
        all_of: Whether it is `and`; else it is `or`.
    """
    implied = trace.part(_Presence).implied
    known = [implied[id(each)] for each in parts if id(each) in implied]
    true: tuple[OptionalValue, ...] = tuple(optional for each in known for optional in each[1])
    false: tuple[OptionalValue, ...] = tuple(optional for each in known for optional in each[2])
    if negated:
        true, false = false, true
    elif len(parts) > 1:
        true, false = (true, ()) if all_of else ((), false)
    if true or false:
        implied[id(flag)] = (flag, true, false)
    return flag


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: function(
        self.needed(), other.needed() if isinstance(other, OptionalValue) else other
    )


def _reflected(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: function(other, self.needed())


def _unary(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda self: function(self.needed())


for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(OptionalValue, f"__{_name}__", _binary(getattr(operator, _name)))
for _name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor"):
    setattr(OptionalValue, f"__{_name.strip('_')}__", _binary(getattr(operator, _name)))
    setattr(OptionalValue, f"__r{_name.strip('_')}__", _reflected(getattr(operator, _name)))
for _name in ("neg", "abs", "invert", "pos"):
    setattr(OptionalValue, f"__{_name}__", _unary(getattr(operator, _name)))
OptionalValue.__hash__ = object.__hash__  # type: ignore[method-assign]  # it compares as what it holds
