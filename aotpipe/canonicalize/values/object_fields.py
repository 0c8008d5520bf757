"""Objects as structures of what their attributes hold, as tuples are.

A variable may be another frozen dataclass on each path (`state = replace(state, n=state.n + 1)`): nobody can
change one in place, so that a new object with the same fields stands for each. Of any other class an object
is the one that it is, and paths on which a variable is another one are kept apart (`rewrite.path_scopes`).
Where they cannot be, as from trip to trip of a loop, a trace that `joins_objects` makes a new object of these
too; a change of one that eager may have under another name is refused, as one of a list is.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.values import trace
from aotpipe.model import object_graph, source

# The packages whose own classes are no structures of a model.
_CLOSED: Final = frozenset({"aotpipe", "torch"})
_OTHER: Final = (
    *(torch.nn.Module, torch.Tensor, type, ModuleType, Enum, BaseException),
    *(tuple, list, dict, set, frozenset, deque, str, bytes, int, float, complex),
)


def register(value: Any) -> None:
    """Teach torch's trees the structures in a value, so that what these hold is seen."""
    if isinstance(value, tuple | list):
        for each in value:
            register(each)
    elif isinstance(value, dict):
        for each in dict.values(value):
            register(each)
    elif is_structure(value):
        _register_class(type(value), frozen=is_frozen(value))
        for each in parts(value):
            register(each)


def register_classes(spec: pytree.TreeSpec) -> None:
    """Teach torch's trees the structures in the form of a value that an earlier trace found.

    Raises:
        ExportFailed: One is a class of objects that can be changed, of which this trace makes no new ones.
    """
    if not spec.is_leaf() and spec.type is not None and spec.type not in pytree.SUPPORTED_NODES:
        # What tells an object that can be changed is its class and the names of its attributes.
        frozen = not isinstance(spec.context, tuple)
        if not frozen and not trace.current().joins_objects:
            trace.current().needs.add("joins_objects")
            raise trace.refusal(
                f"a list that grows holds objects of {spec.type.__name__}, which can be changed",
                "declare it `@dataclass(frozen=True)`, and put a new one in its place",
                "python-object-changed",
            )
        _register_class(spec.type, frozen=frozen)
    for each in spec.children():
        register_classes(each)


def _register_class(kind: type, *, frozen: bool) -> None:
    if kind in pytree.SUPPORTED_NODES:
        return
    name = f"{kind.__module__}.{kind.__qualname__}"
    functions = (_flatten, _unflatten) if frozen else (_flatten_open, _unflatten_open)
    with_keys = _flatten_with_keys if frozen else None
    pytree.register_pytree_node(kind, *functions, serialized_type_name=name, flatten_with_keys_fn=with_keys)
    if not frozen:
        trace.part(_Registered).kinds.append(kind)


@dataclasses.dataclass(slots=True)
class _Registered:
    """The classes that torch's trees know for as long as a trace lasts."""

    kinds: list[type] = dataclasses.field(default_factory=list)


@contextmanager
def forgotten() -> Iterator[None]:
    """Let torch's trees take objects that can be changed for leaves again after a trace."""
    try:
        yield
    finally:
        for kind in trace.part(_Registered).kinds:
            pytree._deregister_pytree_node(kind)  # type: ignore[no-untyped-call,unused-ignore]  # noqa: SLF001  # no public way


def is_structure(value: Any) -> bool:
    """Whether a new object with the same fields may stand for a value."""
    return is_frozen(value) or (trace.current().joins_objects and is_open(value))


def is_frozen(value: Any) -> bool:
    """Whether a value is an object of a frozen dataclass, that holds its fields and nothing else."""
    kind = type(value)
    params = getattr(kind, "__dataclass_params__", None)
    if params is None or not params.frozen or "__dataclass_params__" not in vars(kind):
        return False
    if kind.__module__.partition(".")[0] in _CLOSED:
        return False
    own = getattr(value, "__dict__", None)
    return own is None or own.keys() == {each.name for each in dataclasses.fields(value)}


def is_open(value: Any) -> bool:
    """Whether a value is an object of a class of the model's that holds attributes, and nothing else."""
    kind = type(value)
    has_attributes = object_graph.own_dict(value) is not None or is_slotted(value)
    if isinstance(value, _OTHER) or callable(value) or not has_attributes:
        return False
    return is_of_model(kind) and not is_frozen(value)


def is_of_model(kind: type) -> bool:
    """Whether a class is one of the model's own code."""
    path = getattr(sys.modules.get(kind.__module__), "__file__", None)
    is_closed = kind.__module__.partition(".")[0] in _CLOSED
    return not is_closed and path is not None and source.is_model_code(path)


def is_slotted(value: object) -> bool:
    """Whether a value is an object of a class of the model's that keeps attributes outside of `__dict__`."""
    kind: Any = type(value)
    return _has_slots(kind) and object_graph.is_object(value)


@lru_cache(maxsize=256)
def _has_slots(kind: type) -> bool:
    return kind.__module__.partition(".")[0] not in _CLOSED and any(object_graph.slot_names(kind))


def can_be_changed(value: Any) -> bool:
    """Whether a value is an object of a class of the model's that is not frozen, or says that it is none."""
    of_python = type(value).__module__ in ("builtins", "collections")
    return is_open(value) or (type(value).__hash__ is None and not of_python)


def parts(value: Any) -> list[Any]:
    """What the fields hold."""
    if is_frozen(value):
        return [getattr(value, each.name) for each in dataclasses.fields(value)]
    return _flatten_open(value)[0]


def _flatten(value: Any) -> tuple[list[Any], type]:
    return parts(value), type(value)


def _flatten_with_keys(value: Any) -> tuple[list[tuple[Any, Any]], type]:
    names = [pytree.GetAttrKey(each.name) for each in dataclasses.fields(value)]
    return list(zip(names, parts(value), strict=True)), type(value)


def _unflatten(children: Any, kind: type) -> Any:
    # Without the constructor, which may compute or refuse something.
    made: Any = object.__new__(kind)
    for each, child in zip(dataclasses.fields(kind), children, strict=True):
        object.__setattr__(made, each.name, child)
    return made


def _flatten_open(value: Any) -> tuple[list[Any], tuple[type, tuple[str, ...]]]:
    own = object_graph.contents(value)
    names = tuple(sorted(own))
    return [own[name] for name in names], (type(value), names)


def _unflatten_open(children: Any, context: tuple[type, tuple[str, ...]]) -> Any:
    kind, names = context
    made: Any = object.__new__(kind)
    object_graph.refill(made, dict(zip(names, children, strict=True)))
    return made
