"""Frozen dataclasses as structures of what their fields hold, as tuples are.

A variable may be another such object on each path (`state = replace(state, n=state.n + 1)`): nobody can
change one in place, so that a new object with the same fields stands for each. Of any other class, an object
is the one that it is.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from torch.utils import _pytree as pytree

# The packages whose own classes are no structures of a model.
_CLOSED: Final = frozenset({"aotpipe", "torch"})


def register(value: Any) -> None:
    """Teach torch's trees the frozen dataclasses in a value, so that what these hold is seen."""
    if isinstance(value, tuple | list):
        for each in value:
            register(each)
    elif isinstance(value, dict):
        for each in dict.values(value):
            register(each)
    elif is_frozen(value):
        kind = type(value)
        if kind not in pytree.SUPPORTED_NODES:
            name = f"{kind.__module__}.{kind.__qualname__}"
            pytree.register_pytree_node(
                kind, _flatten, _unflatten, serialized_type_name=name, flatten_with_keys_fn=_flatten_with_keys
            )
        for each in parts(value):
            register(each)


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


def parts(value: Any) -> list[Any]:
    """What the fields hold."""
    return [getattr(value, each.name) for each in dataclasses.fields(value)]


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
