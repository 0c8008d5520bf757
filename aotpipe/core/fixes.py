"""Records of workarounds: what another's software does wrong, and what aotpipe does about it.

A workaround is one module with one record, `FIX`, in a package of records for the stage that applies it
(`aotpipe.backends.iree.fixes.input_phase`); `active` finds them there, so that nothing else names it. Its
test compiles the smallest program without it (`without`) and is expected to fail: on the day upstream mends
the fault, that test passes, is reported, and names the record to remove.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

from aotpipe.core.targets import Target

_LEFT_OUT: Final[ContextVar[frozenset[str]]] = ContextVar("left_out", default=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A workaround for a fault of another's software.

    Attributes:
        id: The name of its module, with hyphens.
        fault: What goes wrong, in one sentence without its full stop.
        remedy: What aotpipe does about it, likewise.
        package: Whose fault it is, as it is installed or known.
        versions: Those that were seen to have it, as PEP 440 writes them.
        targets: Patterns of the targets that need it.
        program: The smallest program that shows it.
        diagnostic: What the compiler says; empty where it computes something else without a word.
        upstream: The address of the report; empty where none was found.
        apply: What the stage does, in the form that its package describes; None where no stage can.
        for_all: Whether a program for several devices takes it only if each of them needs it.
    """

    id: str
    fault: str
    remedy: str
    package: str = "iree-base-compiler"
    versions: str = "==3.13.*"
    targets: tuple[str, ...]
    program: str
    diagnostic: str = ""
    upstream: str = ""
    apply: Any = None
    for_all: bool = False

    def is_for(self, target: Target) -> bool:
        """Whether a target needs it."""
        return any(fnmatchcase(str(target), pattern) for pattern in self.targets)


@cache
def records(package: str) -> tuple[Fix, ...]:
    """The records of a package's modules, in the order of their names."""
    names = sorted(module.name for module in iter_modules(import_module(package).__path__, f"{package}."))
    return tuple(import_module(name).FIX for name in names)


def active(package: str, targets: Sequence[Target] | None = None) -> tuple[Fix, ...]:
    """The records of a stage's package that are applied for these targets; for any where None."""
    return tuple(
        fix
        for fix in records(package)
        if fix.apply is not None and fix.id not in _LEFT_OUT.get()
        if targets is None or (all if fix.for_all else any)(map(fix.is_for, targets))
    )


@contextmanager
def without(fix: Fix) -> Iterator[None]:
    """Leave a workaround out while the body runs."""
    token = _LEFT_OUT.set(_LEFT_OUT.get() | {fix.id})
    try:
        yield
    finally:
        _LEFT_OUT.reset(token)
