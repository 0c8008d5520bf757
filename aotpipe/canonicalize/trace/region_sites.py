"""Where in a trace a branch or a loop stands, and what was found there when it was run before.

A loop runs its body until its variables settle, and each region is run once more when it is put into the
graph. Fixpoint anew in every run, one inside of d loops would be run r**d times. A `Site` is a statement as
one run of what is around it comes to it: by which calls, and the how many-th time. It keeps what was found
there, and the next run begins with that. A loop around it only widens what it starts from, so that what it
needed the last time it needs again.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, TypeVar

from aotpipe.canonicalize.alias.effects import Mark
from aotpipe.canonicalize.values import trace

F = TypeVar("F", bound=Callable[..., Any])
_Key = tuple[tuple[tuple[CodeType, int], ...], int]


class Site:
    """What is known of one region.

    Attributes:
        changed: The containers that it changes, in the order in which that was found.
        fixpoint_note: What its variables settled to, if it is a loop.
    """

    def __init__(self) -> None:
        self.changed: list[tuple[Mark, ...]] = []
        self.fixpoint_note: Any = None
        self._inner: dict[Hashable, dict[_Key, Site]] = {}

    def inner(self, path: Hashable) -> dict[_Key, Site]:
        """The places inside of it, on one of its paths."""
        return self._inner.setdefault(path, {})


class _Run:
    """One run of what is around a region."""

    def __init__(self, sites: dict[_Key, Site]) -> None:
        self.sites = sites
        self.counts: Counter[tuple[tuple[CodeType, int], ...]] = Counter()


@dataclass(slots=True)
class _Runs:
    """The runs around what is traced now, the outermost of which is the model's own."""

    stack: list[_Run] = field(default_factory=lambda: [_Run({})])


_borders: set[CodeType] = set()


def boundary(function: F) -> F:
    """A function whose callers are no part of a place: it runs the region that the place is in."""
    _borders.add(function.__code__)
    return function


@contextmanager
def entered(site: Site, path: Hashable = None) -> Iterator[None]:
    """Run a region, or one path of it."""
    stack = trace.part(_Runs).stack
    stack.append(_Run(site.inner(path)))
    try:
        yield
    finally:
        stack.pop()


def current() -> Site:
    """The place of what calls; a new one outside of a trace."""
    run = trace.part(_Runs).stack[-1]
    steps = tuple(_steps(sys._getframe(1)))  # noqa: SLF001  # the only way to who called
    run.counts[steps] += 1
    return run.sites.setdefault((steps, run.counts[steps]), Site())


def _steps(frame: FrameType | None) -> Iterator[tuple[CodeType, int]]:
    while frame is not None and frame.f_code not in _borders:
        yield frame.f_code, frame.f_lasti
        frame = frame.f_back
