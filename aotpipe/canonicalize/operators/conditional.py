"""One of two values, where the graph decides which: conditional expressions and values that may be None.

A function of the model that is called with a value that may be None is rewritten at once, so that its
`is None` is part of the graph. Of any other function it is tried whether it takes None: if it does, the graph
calls it both ways; if not, eager would raise, and so does the program. The same goes for lists whose length
only a run knows, which functions of Python's own would take for lists of another length.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any, Final, TypeVar

import torch

from aotpipe.canonicalize.trace import decisions, dry_run, regions, torch_functions
from aotpipe.canonicalize.trace.torch_functions import INDEXING, is_staged
from aotpipe.canonicalize.values import dynamic_list, optional_values, trace
from aotpipe.canonicalize.values.abstract_values import UNDEFINED, Variables
from aotpipe.canonicalize.values.chosen_object import ChosenObject
from aotpipe.canonicalize.values.dynamic_list import DynamicList
from aotpipe.canonicalize.values.optional_values import OptionalValue, Partial
from aotpipe.canonicalize.values.trace import refusal
from aotpipe.model import object_graph

T = TypeVar("T")
_DEPTH: Final = 3


def choose(test: object, then: Callable[[], T], other: Callable[[], T]) -> T:
    """`then() if test else other()`."""
    test = torch_functions.asked(test)
    if not is_staged(test):
        return then() if test else other()
    decisions.expression("choice")
    return _branch(test, then, other, "the expression")


def either(optional: OptionalValue, then: Callable[[], T], other: Callable[[], T]) -> T:
    """`then()` where a value is present, else `other()`."""
    if optional.is_optional_present:
        return then()
    return _branch(optional_values.presence(optional, wanted=True), then, other, "the result")


def _branch(test: object, then: Callable[[], T], other: Callable[[], T], name: str) -> T:
    chosen: list[Any] = [UNDEFINED]

    def take(value: Any) -> None:
        chosen[0] = value

    variables = Variables.of_list(chosen, name, watched=lambda: ((name, then), (name, other)))
    regions.branch(test, lambda: take(then()), lambda: take(other()), variables)
    value: T = chosen[0]
    return value


def call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of the model's code; what it calls is rewritten if it is to decide on what may be None."""
    args = tuple(_known(each) for each in args)
    kwargs = {key: _known(each) for key, each in kwargs.items()}
    is_type = isinstance(function, type)
    owner = None if is_type else getattr(function, "__self__", None)
    target = vars(function).get("__init__") if is_type else _function_of(function)
    given = (*args, *kwargs.values())
    reads = isinstance(owner, torch.nn.Module) or any(map(_readers_rewritten, (function, *given)))
    if not (reads or any(map(may_lack, (*given, owner)))) or _rewritten(target):
        return function(*args, **kwargs)
    if any(map(dynamic_list.holds_dynamic_list, given)) and not _takes_dynamic_lists(function, owner):
        name = getattr(function, "__name__", function)
        said = f"`{name}` is called with a list whose length a tensor decides"
        raise refusal(said, "stack the list first", "list-grows")
    return function(*args, **kwargs) if is_type or target is None else called(function, args, kwargs)


def _readers_rewritten(module: Any) -> bool:
    """Whether a module, or one in it, has an attribute that may lack its value; its readers are rewritten.

    torch calls the `forward` of a module, and so no operator of ours stands between the two.
    """
    if not isinstance(module, torch.nn.Module):
        return False
    parts = object_graph.modules_of(module).values()
    holders = {id(part) for part in parts if any(map(may_lack, vars(part).values()))}
    for part in parts if holders else ():
        if any(id(each) in holders for each in object_graph.modules_of(part).values()):
            _rewritten(_function_of(part))
    return bool(holders)


def _takes_dynamic_lists(function: Any, owner: object) -> bool:
    """Whether a function that is not the model's takes such a list for what it is, or refuses it."""
    module = getattr(function, "__module__", None) or getattr(owner, "__module__", None) or ""
    if isinstance(function, type) and module not in ("builtins", "collections", "itertools"):
        return True  # a class of the user's, which keeps it
    is_method = type(owner) in (list, dict, set) or isinstance(owner, torch.Tensor)
    return is_method or function in _OF_ANY or module.partition(".")[0] == "torch"


_OF_ANY: Final = (type, id, print, repr, getattr, setattr, hasattr, callable)


def called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a function that cannot be rewritten, with arguments that may be None."""
    optional = next((each for each in (*args, *kwargs.values()) if isinstance(each, OptionalValue)), None)
    if optional is None:
        return function(*args, **kwargs)

    def with_(value: Any) -> Any:
        return called(
            function,
            tuple(value if each is optional else each for each in args),
            {key: value if each is optional else each for key, each in kwargs.items()},
        )

    if optional.is_optional_present:
        return with_(optional.payload_of_optional)
    if not _takes_none(function, args, kwargs, optional):
        name = getattr(function, "__name__", "a function")
        optional.require_optional(TypeError(f"{name} takes no None"))
        return with_(optional.payload_of_optional)
    return either(optional, lambda: with_(optional.payload_of_optional), lambda: with_(None))


def _takes_none(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], optional: OptionalValue
) -> bool:
    def tried(value: Any) -> Any:
        if value is optional:
            return None
        return value.payload_of_optional if isinstance(value, OptionalValue) else value

    if function in INDEXING:
        return False  # a None in an index adds a dim, which no path of a program can have for itself
    try:
        with dry_run.unrecorded():
            function(*map(tried, args), **{key: tried(value) for key, value in kwargs.items()})
    except Exception:  # noqa: BLE001  # a function says in its own way that it takes no None
        return False
    return True


def _known(value: Any) -> Any:
    return (
        value.payload_of_optional if isinstance(value, OptionalValue) and value.is_optional_present else value
    )


def may_lack(value: Any, depth: int = _DEPTH) -> bool:
    """Whether a value, or something in it, may be None or missing."""
    if isinstance(value, OptionalValue | Partial | DynamicList) or type(value) is ChosenObject:
        return True
    if not depth or isinstance(value, torch.Tensor | torch.nn.Module | type):
        return False
    return any(may_lack(each, depth - 1) for each in _inside(value))


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from dict.values(value)
    elif isinstance(value, list | tuple | set):
        yield from value
    elif dataclasses.is_dataclass(value):
        yield from (getattr(value, each.name, None) for each in dataclasses.fields(value))
    else:
        yield from (object_graph.own_dict(value) or {}).values()


def _function_of(callee: Any) -> FunctionType | None:
    if isinstance(callee, functools.partial):
        return _function_of(callee.func)
    if isinstance(callee, torch.nn.Module):
        callee = callee.forward
    if isinstance(callee, MethodType):
        callee = callee.__func__
    if isinstance(callee, FunctionType):
        return callee
    own = [vars(kind).get("__call__") for kind in type(callee).__mro__]
    return next((each for each in own if isinstance(each, FunctionType)), None)


def _rewritten(function: Any) -> bool:
    rewrite_now = trace.current().rewrite_now
    return isinstance(function, FunctionType) and rewrite_now is not None and rewrite_now(function)
