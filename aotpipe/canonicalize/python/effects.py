"""Finds what a piece of Python changes in place, and takes it back: containers, attributes, closures.

A graph holds tensors. A region of Python that is put into one is run for what it computes, more than once and
on paths that eager would not take, so that nothing else may come of it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import torch
from torch import nn

_KINDS: Final = frozenset({list, dict, set, deque, OrderedDict})
_INNER: Final = ("_parameters", "_buffers", "_modules")
_NONE: Final = object()
# What is not looked into: a module is watched by `watching`, a tensor's writes are ops.
_CLOSED: Final = (nn.Module, torch.Tensor, ModuleType, type)


class Changed(Exception):
    """Something was changed; the message names it."""


_roots: list[nn.Module] = []


@contextmanager
def watching(module: nn.Module) -> Iterator[None]:
    """Count the attributes of a module and its submodules among what must not change."""
    _roots.append(module)
    try:
        yield
    finally:
        _roots.pop()


def watched_modules() -> tuple[nn.Module, ...]:
    """The modules whose attributes must not change."""
    return tuple(_roots)


@contextmanager
def unchanged(values: Iterable[tuple[str, object]]) -> Iterator[None]:
    """Take back what the body changes in the containers among these named values, and in watched modules.

    Raises:
        Changed: It changed one, if it did not raise anyway.
    """
    held = list(_held(values))
    before = [(name, container, _copy(container)) for name, container in held]
    try:
        yield
    finally:
        changed = [(name, container, old) for name, container, old in before if not _is_same(container, old)]
        names = dict.fromkeys(_named(*each) for each in changed)
        for _, container, old in changed:
            _restore(container, old)
    if names:
        raise Changed(", ".join(names))


def _held(values: Iterable[tuple[str, object]]) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()

    def walk(name: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, _CLOSED) or _is_of_torch(value) or id(value) in seen:
            return
        seen.add(id(value))
        if type(value) in _KINDS:
            yield name, value
            for inner in value.values() if isinstance(value, dict) else value:
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
    for root in _roots:
        for path, module in root.named_modules():
            own = vars(module)
            yield f"{path or type(module).__name__}.", own
            for attribute, value in own.items():
                if attribute in _INNER:
                    yield f"{path or type(module).__name__}.", value
                else:
                    yield from walk(f"{path or type(module).__name__}.{attribute}", value)


def _is_of_torch(value: object) -> bool:
    """Whether a value is of a class of torch's own: what such a one holds changes as torch traces."""
    return type(value).__module__.partition(".")[0] in ("torch", "sympy")


def _held_by(cell: CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:
        return [_NONE]


def _copy(container: Any) -> Any:
    return _held_by(container) if isinstance(container, CellType) else container.copy()


def _is_same(container: Any, old: Any) -> bool:
    if isinstance(container, CellType):
        container = _held_by(container)
    if len(container) != len(old):
        return False
    if isinstance(container, dict):
        return all(
            key == other and value is held
            for (key, value), (other, held) in zip(container.items(), old.items(), strict=True)
        )
    if isinstance(container, set):
        return bool(container == old)
    return all(value is held for value, held in zip(container, old, strict=True))


def _restore(container: Any, old: Any) -> None:
    if isinstance(container, CellType):
        if old[0] is _NONE:
            del container.cell_contents
        else:
            container.cell_contents = old[0]
        return
    container.clear()
    (container.extend if isinstance(container, (list, deque)) else container.update)(old)


def _named(name: str, container: Any, old: Any) -> str:
    """The name of what was changed; a module's attributes each have their own."""
    if not name.endswith("."):
        return name
    keys = [key for key in {**old, **container} if old.get(key, _NONE) is not container.get(key, _NONE)]
    return ", ".join(name + key for key in keys)
