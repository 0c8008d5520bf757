"""Finds what a piece of Python changes in place, and takes it back: containers, attributes, closures.

A graph holds tensors. A region of Python that is put into one is run for what it computes, more than once and
on paths that eager would not take, so that nothing else may come of it.
"""

from __future__ import annotations

import operator
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import torch
from torch import nn

from aotpipe.canonicalize.values import trace
from aotpipe.canonicalize.values.abstract_values import UNDEFINED, Undefined
from aotpipe.canonicalize.values.optional_values import Partial
from aotpipe.model import object_graph

_KINDS: Final = frozenset({list, dict, set, deque, OrderedDict, defaultdict, Counter, Partial})
_NONE: Final = object()
# What is not looked into: a module is watched by `watching`, a tensor's writes are ops.
_CLOSED: Final = (nn.Module, torch.Tensor, ModuleType, type)
Mark = tuple[str, type, int]
"""A container among those that are looked at: its name, its type, and which of those of both it is."""


class Changed(Exception):
    """Containers were changed; the message names them.

    Attributes:
        containers: Each with its name.
        known: All that were looked at.
        marks: By which they are found `again`.
    """

    def __init__(
        self, held: Sequence[tuple[str, Any]], changed: Sequence[tuple[str, Any]], names: Iterable[str]
    ) -> None:
        super().__init__(", ".join(names))
        self.containers = [(name.rstrip("."), container) for name, container in changed]
        self.known = [container for _, container in held]
        ids = {id(container) for _, container in changed}
        self.marks = tuple(
            mark for mark, (_, container) in zip(_marks(held), held, strict=True) if id(container) in ids
        )


@dataclass(slots=True)
class _Watched:
    """The modules whose attributes are among what may change.

    Attributes:
        roots: The modules; their submodules are watched too.
        is_lifted: Whether what they hold at last is lifted into buffers.
        at_first: The containers that they held at first, by identity.
    """

    roots: list[nn.Module] = field(default_factory=list)
    is_lifted: bool = False
    at_first: dict[int, Any] = field(default_factory=dict)


@contextmanager
def watching(module: nn.Module, *, lifts_state: bool) -> Iterator[None]:
    """Count the attributes of a module and its submodules among what is changed.

    `lifts_state`: what they hold at last is lifted into buffers; else it would be lost, and must not change.
    """
    watched = trace.part(_Watched)
    with trace.pushed(watched.roots, module):
        at_first = {id(container): container for _, container in _held(())}
        with trace.assigned(watched, is_lifted=lifts_state, at_first=at_first):
            yield


def lost(containers: Iterable[Any]) -> bool:
    """Whether one of these containers was a module's at first, and nothing keeps its changes."""
    watched = trace.part(_Watched)
    return not watched.is_lifted and any(id(container) in watched.at_first for container in containers)


def watched_modules() -> tuple[nn.Module, ...]:
    """The modules whose attributes must not change."""
    return tuple(trace.part(_Watched).roots)


@contextmanager
def unchanged(values: Iterable[tuple[str, object]]) -> Iterator[None]:
    """Take back what the body changes in the containers among these named values, and in watched modules.

    Raises:
        Changed: It changed one, if it did not raise anyway.
    """
    held = list(_held(values))
    before = [(name, container, copied(container)) for name, container in held]
    try:
        yield
    finally:
        changed = [(name, container, old) for name, container, old in before if not is_same(container, old)]
        names = dict.fromkeys(_named(*each) for each in changed)
        for _, container, old in changed:
            _restore(container, old)
    if names:
        raise Changed(held, [(name, container) for name, container, _ in changed], names)


def again(values: Iterable[tuple[str, object]], marks: Collection[Mark]) -> Changed | None:
    """What an earlier run changed, among these values and in modules; None where it is not there."""
    held = list(_held(values))
    found = [each for mark, each in zip(_marks(held), held, strict=True) if mark in marks]
    return Changed(held, found, (name for name, _ in found)) if len(found) == len(marks) else None


def _marks(held: Iterable[tuple[str, Any]]) -> Iterator[Mark]:
    counts: Counter[tuple[str, type]] = Counter()
    for name, container in held:
        kind = (name, type(container))
        yield *kind, counts[kind]
        counts[kind] += 1


def _held(values: Iterable[tuple[str, object]]) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()

    def walk(name: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, _CLOSED) or is_of_torch(value) or id(value) in seen:
            return
        seen.add(id(value))
        if type(value) in _KINDS:
            yield name, value
            for inner in _items(value).values() if isinstance(value, dict) else value:
                yield from walk(name, inner)
        elif isinstance(value, MethodType):
            yield from walk(name, value.__self__)
        elif isinstance(value, FunctionType):
            for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                yield variable, cell
                yield from walk(variable, _held_by(cell)[0])
        elif isinstance(own := getattr(value, "__dict__", None), dict):
            yield f"{name}.", own
            for attribute, inner in own.items():
                yield from walk(f"{name}.{attribute}", inner)

    for name, value in values:
        yield from walk(name, value)
    for root in watched_modules():
        for path, module in root.named_modules():
            own = vars(module)
            prefix = f"{path or type(module).__name__}."
            yield prefix, own
            for attribute, value in own.items():
                if attribute in object_graph.OWN:
                    yield prefix, value
                else:
                    yield from walk(prefix + attribute, value)


def _items(container: dict[Any, Any]) -> dict[Any, Any]:
    """A dict's items as they are: one whose keys may be missing tells them to nobody else."""
    return dict(dict.items(container)) if isinstance(container, Partial) else container


def is_of_torch(value: object) -> bool:
    """Whether a value is of a class of torch's own: what such a one holds changes as torch traces."""
    return type(value).__module__.partition(".")[0] in ("torch", "sympy")


def _held_by(cell: CellType) -> list[Any]:
    try:
        value = cell.cell_contents
    except ValueError:
        return [_NONE]
    # A region leaves a mark in a variable that has no value.
    return [_NONE if isinstance(value, Undefined) else value]


def copied(container: Any) -> Any:
    """What a container holds, as a container of its own."""
    return _held_by(container) if isinstance(container, CellType) else container.copy()


def is_same(container: Any, old: Any) -> bool:
    """Whether a container holds what it held when it was `copied`."""
    if isinstance(container, CellType):
        container = _held_by(container)
    if isinstance(container, dict):
        container, old = _items(container), _items(old)
        return list(container) == list(old) and all(map(operator.is_, container.values(), old.values()))
    if isinstance(container, set):
        return bool(container == old)
    return len(container) == len(old) and all(map(operator.is_, container, old))


def contents(container: Any, known: Iterable[Any]) -> Any:
    """What a container holds, as a list or a dict; the `known` containers in it as constants.

    Of a variable of an enclosing function it is the value itself.
    """
    held = {id(each): Same(each) for each in known}
    found = copied(container)
    if isinstance(container, CellType):
        (value,) = found
        return UNDEFINED if value is _NONE else held.get(id(value), value)
    if isinstance(found, dict):
        return {key: held.get(id(value), value) for key, value in _items(found).items()}
    return [held.get(id(value), value) for value in found]


def fill(container: Any, found: Any) -> None:
    """Put contents back."""
    if isinstance(container, CellType):
        _restore(container, [_NONE if isinstance(found, Undefined) else _opened(found)])
    elif isinstance(found, dict):
        _restore(container, {key: _opened(value) for key, value in _items(found).items()})
    else:
        _restore(container, [_opened(value) for value in found])


@dataclass(frozen=True, eq=False, slots=True)
class Same:
    """A container inside of another one, whose own contents are followed by themselves."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _opened(value: Any) -> Any:
    return value.value if isinstance(value, Same) else value


def _restore(container: Any, old: Any) -> None:
    if isinstance(container, CellType):
        if old[0] is _NONE:
            del container.cell_contents
        else:
            container.cell_contents = old[0]
    elif isinstance(container, Partial):
        container.refill(old)
    else:
        object_graph.refill(container, old)


def _named(name: str, container: Any, old: Any) -> str:
    """The name of what was changed; a module's attributes each have their own."""
    if not name.endswith("."):
        return name
    keys = [key for key in {**old, **container} if old.get(key, _NONE) is not container.get(key, _NONE)]
    return ", ".join(name + key for key in keys)
