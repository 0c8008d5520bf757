"""Finds the functions of islands: those given, those marked in this process, those that can be imported.

Gives functions by name; raises `IslandNotFound` for the first that is missing. torch is imported only for an
island that is an op of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any

from aotpipe.errors import IslandNotFound
from aotpipe.runtime.islands import marks
from aotpipe.runtime.islands.chain import Island


def functions(
    islands: Iterable[Island], given: Mapping[str, Callable[..., Any]] | None = None
) -> dict[str, Callable[..., Any]]:
    """What each island runs, by its name.

    Args:
        islands: Those of a chain.
        given: Functions by name, which come first.

    Raises:
        IslandNotFound: A function that this host lacks.
    """
    return {island.name: _function(island, given or {}) for island in islands}


def _function(island: Island, given: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    if island.name in given:
        function = given[island.name]
        mark = marks.mark_of(function)
        return function if mark is None else mark.function
    if island.kind == "op":
        return _op(island)
    if island.name in marks.MARKS:
        return marks.MARKS[island.name].function
    module, _, path = island.name.partition(":")
    try:
        root: object = importlib.import_module(module)
    except ImportError as error:
        raise _missing(island, f"{module} cannot be imported: {error}") from error
    mark = marks.mark_of(_attribute(island, root, path))
    if mark is None:
        # A bundle names what is called: it must not be able to name any function of a host.
        raise _missing(island, f"{path} of {module} is not marked by aotpipe.eager_island")
    return mark.function


def _op(island: Island) -> Callable[..., Any]:
    import torch

    found = _attribute(island, torch.ops, island.name)
    if not isinstance(found, torch._ops.OpOverload):  # noqa: SLF001  # torch has no public name for an op's type
        raise _missing(island, f"{island.name} is no op of torch")
    return found


def _attribute(island: Island, root: object, path: str) -> object:
    try:
        return reduce(getattr, path.split("."), root)
    except AttributeError as error:
        raise _missing(island, str(error)) from error


def _missing(island: Island, reason: str) -> IslandNotFound:
    return IslandNotFound(
        f"the bundle needs the Python function {island.name}",
        reason=reason,
        hint=f"put its module on the path, or pass islands={{{island.name!r}: function}}",
        where=island.where,
    )
