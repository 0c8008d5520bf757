"""The functions of islands: the marks of those that stay Python, and how a host finds them.

A function is given, marked in this process, or imported; a host calls no function of a bundle that has no
mark. Raises `IslandNotFound` for the first that is missing. torch is imported only for an island that is an
op of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from aotpipe.errors import IslandNotFound
from aotpipe.runtime.islands.chain import Arrays, Island

MARK: Final = "__aotpipe_island__"
"""The attribute of a marked function that holds its `Mark`."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A marked function.

    Attributes:
        function: As the user wrote it.
        name: `module:function`, by which a host finds it.
        reason: Why it is no part of a program.
    """

    function: Callable[..., Any]
    name: str
    arrays: Arrays
    reason: str


MARKS: Final[dict[str, Mark]] = {}
"""The marked functions of this process, by name."""


def mark_of(function: object) -> Mark | None:
    """The mark of a function; None where it has none."""
    return getattr(function, MARK, None)


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
        mark = mark_of(function)
        return function if mark is None else mark.function
    if island.kind == "op":
        return _op(island)
    if island.name in MARKS:
        return MARKS[island.name].function
    module, _, path = island.name.partition(":")
    try:
        root: object = importlib.import_module(module)
    except ImportError as error:
        raise _missing(island, f"{module} cannot be imported: {error}") from error
    mark = mark_of(_attribute(island, root, path))
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
