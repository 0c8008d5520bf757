"""Where in a trace a branch or a loop stands, and what was found there when it was run before.

A loop runs its body until its variables settle, and each region is run once more when it is put into the
graph. If each run sought its fixpoint anew, a region inside of d loops would be run r**d times. A `Site` is a
statement together with the calls by which a run comes to it, and how often the run came so before. It keeps
what was found there, and the next run begins with that. A loop around it only widens what it starts from, so
that what it needed the last time it needs again.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, TypeVar

from aotpipe.canonicalize.alias.effects import Mark
from aotpipe.canonicalize.values import trace

F = TypeVar("F", bound=Callable[..., Any])
_Steps = tuple[tuple[CodeType, int], ...]
_Key = tuple[_Steps, int]


@dataclass(slots=True, eq=False)
class Site:
    """What is known of one region.

    Attributes:
        changed: The containers that it changes, in the order in which that was found.
        fixpoint_note: What its variables settled to, if it is a loop.
        owns_containers: Whether its variables, if it is a loop, begin with copies of their containers.
        opened: The names of the containers of which the containers inside are other ones on each path.
    """

    changed: list[tuple[Mark, ...]] = field(default_factory=list)
    fixpoint_note: Any = None
    owns_containers: bool = False
    opened: set[str] = field(default_factory=set)
    inner: defaultdict[Hashable, dict[_Key, Site]] = field(default_factory=lambda: defaultdict(dict))


@dataclass(slots=True)
class _Run:
    """One run of what is around a region: the places in it, and how often each path of calls came."""

    sites: dict[_Key, Site]
    counts: Counter[_Steps] = field(default_factory=Counter)


@dataclass(slots=True)
class _Runs:
    """The runs around what is traced now, the outermost of which is the model's own."""

    stack: list[_Run] = field(default_factory=lambda: [_Run({})])


_borders: set[CodeType] = set()


def boundary(function: F) -> F:
    """A function whose callers are no part of a place: it runs the region that the place is in."""
    _borders.add(function.__code__)
    return function


def entered(site: Site, path: Hashable = None) -> AbstractContextManager[object]:
    """Run a region, or one path of it."""
    return trace.pushed(trace.part(_Runs).stack, _Run(site.inner[path]))


def depth() -> int:
    """How many regions are around what runs."""
    return len(trace.part(_Runs).stack)


def current() -> Site:
    """The site of the statement that calls; a new one outside of a trace."""
    run = trace.part(_Runs).stack[-1]
    steps = tuple(_steps(sys._getframe(1)))  # noqa: SLF001  # the only way to who called
    run.counts[steps] += 1
    return run.sites.setdefault((steps, run.counts[steps]), Site())


def _steps(frame: FrameType | None) -> Iterator[tuple[CodeType, int]]:
    while frame is not None and frame.f_code not in _borders:
        yield frame.f_code, frame.f_lasti
        frame = frame.f_back
