"""Notices where a list, a dict or an object that a branch or a loop gave is changed under another name.

What a variable is after a branch is made anew of what it is on each path. Where eager would have given it a
container that has another name too, a change in place under one of the names is one under both; here it would
be lost. `note` remembers such containers, and `checked` refuses a change of one.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from aotpipe.canonicalize.alias import effects, referrers
from aotpipe.canonicalize.values import trace
from aotpipe.errors import ExportFailed, SourceLine
from aotpipe.model import source

_KINDS: Final = (list, dict, deque, OrderedDict, defaultdict, Counter)


class _Noted(NamedTuple):
    """A container that has several names in eager, as it was when the region ended."""

    name: str
    container: Any
    before: Any
    where: SourceLine | None


@dataclass(slots=True)
class _Containers:
    """The containers that regions of a trace gave.

    Attributes:
        noted: Those that have several names in eager.
        originals: Of a copy that a region left, what it is a copy of; by identity.
    """

    noted: list[_Noted] = field(default_factory=list)
    originals: dict[int, tuple[Any, Any]] = field(default_factory=dict)


def copied(values: Any, copies: Any) -> None:
    """Remember which containers a region left, of which these are copies."""
    for old, new in _pairs(values, copies):
        trace.part(_Containers).originals[id(new)] = (new, old)


def original(value: Any) -> Any:
    """The container that a region left, in place of its copy; any other value is itself."""
    return trace.part(_Containers).originals.get(id(value), (value, value))[1]


@contextmanager
def checked() -> Iterator[None]:
    """Inside, what regions give is watched.

    Raises:
        ExportFailed: A container was changed that eager would have under two names.
    """
    noted = trace.part(_Containers).noted
    mark = len(noted)
    try:
        yield
        for each in noted[mark:]:
            if not effects.is_same(each.container, each.before):
                raise ExportFailed(
                    f"`{each.name}` is changed in place, and a branch or a loop on a tensor decides whether "
                    "another variable is the same one",
                    hint="copy it where it gets its second name (`list(items)`, `dict(table)`)",
                    where=each.where,
                )
    finally:
        del noted[mark:]


def note(names: Sequence[str], paths: Sequence[Sequence[Any]], results: Sequence[Any]) -> None:
    """Remember containers that variables have after a region, and that eager may have under other names too.

    Args:
        names: Of the variables.
        paths: Their values on each path.
        results: What they are after it.
    """
    found: dict[int, tuple[str, Any]] = {}
    held: set[int] | None = None
    for values in paths:
        became: dict[int, list[tuple[str, Any, Any]]] = {}
        for name, old, new in zip(names, values, results, strict=True):
            for each, other in _pairs(old, new):
                left = original(each)
                if left is not other:
                    became.setdefault(id(left), []).append((name, left, other))
        if not became:
            continue
        held = referrers.containers() if held is None else held
        for key, pairs in became.items():
            name, old, _ = pairs[0]
            made = {id(new): (name, new) for name, _, new in pairs}
            if key in held:
                made[key] = (name, old)
            if len(made) > 1:
                found |= made
    where = source.of_caller() if found else None
    trace.part(_Containers).noted.extend(
        _Noted(name, each, effects.copied(each), where) for name, each in found.values()
    )


def _pairs(old: Any, new: Any) -> Iterator[tuple[Any, Any]]:
    """Each container in a value with what it became."""
    if old is new or type(old) is not type(new):
        return
    if isinstance(old, tuple):
        for each, other in zip(old, new, strict=False):
            yield from _pairs(each, other)
    elif type(old) in _KINDS:
        yield old, new
        if isinstance(old, dict):
            for key in old.keys() & new.keys():
                yield from _pairs(old[key], new[key])
        else:
            for each, other in zip(old, new, strict=False):
                yield from _pairs(each, other)
