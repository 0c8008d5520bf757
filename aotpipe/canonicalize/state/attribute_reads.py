"""Tells which attributes of modules are read before they are written.

For as long as `followed(roots)` lasts, the modules are of a class of their own that notes each access; what
they hold stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch._C import _len_torch_dispatch_stack, _len_torch_function_stack

from aotpipe.canonicalize.trace import dry_run
from aotpipe.canonicalize.values import trace
from aotpipe.model.object_graph import Root


class Reads:
    """The names that were read while nothing had been assigned to them."""

    def __init__(self) -> None:
        self._written: set[tuple[int, str]] = set()
        self._read: set[tuple[int, str]] = set()
        self._depth = _depth()

    def begin(self) -> None:
        """A call begins: nothing is written yet."""
        self._written.clear()
        self._depth = _depth()

    def has(self, root: Root) -> bool:
        """Whether a name was read before it was written."""
        # What a module registers is read by torch, past its class.
        return root.is_buffer or root.identity in self._read

    def read(self, identity: tuple[int, str]) -> None:
        """Note a read."""
        if identity not in self._written:
            self._read.add(identity)

    def wrote(self, identity: tuple[int, str]) -> None:
        """Note an assignment, unless a branch makes it, which another path does not take."""
        if _depth() == self._depth:
            self._written.add(identity)


def _depth() -> tuple[int, int]:
    # A branch that torch traces has modes of its own, which it tells nowhere else; one of ours may have as
    # many as what is around it.
    modes = _len_torch_dispatch_stack() + _len_torch_function_stack()
    return modes - trace.current().modes, dry_run.depth()


@contextmanager
def followed(roots: Iterable[Root]) -> Iterator[Reads]:
    """Note the accesses to attributes."""
    reads = Reads()
    by_owner: dict[int, list[Root]] = {}
    for root in roots:
        if not root.is_buffer:
            by_owner.setdefault(id(root.owner), []).append(root)
    changed: list[tuple[nn.Module, type]] = []
    try:
        for owned in by_owner.values():
            owner = owned[0].owner
            kind = type(owner)
            properties = {root.key: _Followed(root, reads, kind) for root in owned}
            namespace = {**properties, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
            changed.append((owner, kind))
            owner.__class__ = type(kind.__name__, (kind,), namespace)
        yield reads
    finally:
        for owner, kind in changed:
            owner.__class__ = kind


class _Followed:
    """An attribute that notes its accesses; the value lies in the module's own dict."""

    def __init__(self, root: Root, reads: Reads, kind: type) -> None:
        self._root = root
        self._reads = reads
        self._default = getattr(kind, root.key, None)
        self._has_default = hasattr(kind, root.key)

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        if owner is None:
            return self._default
        self._reads.read(self._root.identity)
        held = vars(owner)
        if self._root.key in held:
            return held[self._root.key]
        if self._has_default:
            return self._default
        # What nn.Module looks up besides: parameters, buffers, submodules.
        raise AttributeError(self._root.key)

    def __set__(self, owner: Any, value: Any) -> None:
        self._reads.wrote(self._root.identity)
        vars(owner)[self._root.key] = value

    def __delete__(self, owner: Any) -> None:
        self._reads.wrote(self._root.identity)
        if self._root.key not in vars(owner):
            raise AttributeError(self._root.key)
        del vars(owner)[self._root.key]
