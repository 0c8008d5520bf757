"""Dicts and sets whose keys hold sizes that vary: `cache[n]`, `(n, d) in cache`.

torch gives a SymInt no hash. Here a key is looked for by comparison: sizes that are the same expression are
equal, others are asked for as in any other test of the model, which fixes them or is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import MethodType
from typing import Any, Final

import torch

from aotpipe.canonicalize.alias import effects
from aotpipe.canonicalize.values import trace
from aotpipe.model import source

ABSENT: Final = object()
_REMEMBERING: Final = functools._lru_cache_wrapper  # noqa: SLF001  # its only name


def is_size_key(value: object) -> bool:
    """Whether a value is a size that varies, or a tuple that holds one."""
    return isinstance(value, torch.SymInt) or (isinstance(value, tuple) and any(map(is_size_key, value)))


def is_compared(keys: Iterable[Any], wanted: Any) -> bool:
    """Whether a key has to be looked for by comparison."""
    return is_size_key(wanted) or any(map(is_size_key, keys))


def find(keys: Iterable[Any], wanted: Any) -> Any:
    """The key that equals the wanted one, else `ABSENT`."""
    return next((key for key in keys if _is_same(key, wanted)), ABSENT)


def own_key(table: dict[Any, Any], wanted: Any) -> Any:
    """The key of a dict that equals the wanted one, else the wanted one itself."""
    found = find(table, wanted) if is_compared(table, wanted) else ABSENT
    return wanted if found is ABSENT else found


def _is_same(key: Any, wanted: Any) -> bool:
    if isinstance(key, tuple) and isinstance(wanted, tuple):
        return len(key) == len(wanted) and all(map(_is_same, key, wanted))
    return bool(key == wanted)


def method(function: Any) -> Callable[..., Any] | None:
    """What stands for a dict's method that looks for a key, and for a function that remembers its results."""
    owner = getattr(function, "__self__", None)
    if isinstance(function, _REMEMBERING):
        return functools.partial(_remembered, function)
    if isinstance(function, MethodType) and isinstance(function.__func__, _REMEMBERING):
        return functools.partial(_remembered, function.__func__, owner)
    name = getattr(function, "__name__", "")
    if type(owner) is not dict or name not in ("get", "setdefault", "pop"):
        return None

    return lambda key, *default: function(own_key(owner, key), *default)


def _remembered(function: Any, *args: Any, **kwargs: Any) -> Any:
    """The result of a function with `lru_cache`; that of the model's own is computed in each call.

    What it remembered of a trace would be tensors of the trace.

    Raises:
        ExportFailed: It changes something, which eager does at the first call with these arguments alone.
    """
    wrapped = function.__wrapped__
    code = getattr(wrapped, "__code__", None)
    if code is None or not source.is_model_code(code.co_filename):
        called = wrapped if _is_hash_of_size((args, tuple(kwargs.items()))) else function
        return called(*args, **kwargs)
    held = [(wrapped.__name__, wrapped), *((wrapped.__name__, each) for each in (*args, *kwargs.values()))]
    try:
        with effects.unchanged(held):
            return trace.operators().call(wrapped, *args, **kwargs)
    except effects.Changed as changed:
        raise trace.refusal(
            f"`{wrapped.__name__}` remembers its results and changes {changed}: eager does so at the first "
            "call with these arguments alone",
            "change it where the function is called, or drop `lru_cache`",
            "python-object-changed",
        ) from None


def _is_hash_of_size(key: object) -> bool:
    """Whether the hash of a key asks for one of a size that varies, which an object of it may hold."""
    asked = []

    def of_size(size: torch.SymInt) -> int:
        asked.append(size)
        return 0

    with trace.assigned(torch.SymInt, __hash__=of_size), suppress(TypeError):
        hash(key)
    return bool(asked)
