"""Swaps what a model holds, in place: parameters, buffers, tensors and Python attributes.

A model may reach its tensors through closures, bound methods and shared dicts that a deep copy would not
follow, so the very modules of the user run, with other contents. `Contents` is one such set: `with contents`
puts it in and, at the end, the user's back; `reset` makes it initial again. The user's own tensors are never
written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

import torch

Change = Callable[[torch.Tensor], torch.Tensor]

_CONTAINERS: Final = frozenset({list, tuple, set, deque, dict})
# The dicts of a module that hold tensors and modules by reference; they are captured on their own.
_OWN_DICTS: Final = ("_parameters", "_buffers", "_modules")


@dataclass(frozen=True, slots=True)
class _Captured:
    """References to all that is held at one moment."""

    dicts: tuple[tuple[dict[str, Any], dict[str, Any]], ...]
    data: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    def restore(self) -> None:
        for live, items in self.dicts:
            live.clear()
            live.update(items)
        for tensor, data in self.data:
            tensor.data = data


class Contents:
    """One set of contents of some modules, initially a changed copy of the user's.

    Args:
        modules: With all their submodules.
        parameters: What becomes of each parameter, once; None leaves them the user's own.
        others: What becomes of buffers, and of tensors in attributes and in lists and dicts of them.
        written: Parameters that a call changes: each reset makes them anew, as it does buffers.
    """

    def __init__(
        self,
        modules: Iterable[torch.nn.Module],
        *,
        parameters: Change | None,
        others: Change,
        written: Iterable[torch.nn.Parameter] = (),
    ) -> None:
        # Two modules may share one __dict__ (a method as a module of its own).
        parts = {id(part.__dict__): part for module in modules for part in module.modules()}
        self._parts = tuple(parts.values())
        self._others = others
        self._written = {id(parameter) for parameter in written}
        self._pristine = self._capture()
        self._containers = self._find_containers()
        self._parameters = _changed(self._pristine, parameters)
        self._current: _Captured | None = None
        self._outer: _Captured | None = None

    def reset(self) -> None:
        """Make the contents initial again, also while they are in."""
        self._current = None
        if self._outer is not None:
            self._fresh().restore()

    def __enter__(self) -> Self:
        assert self._outer is None, "these contents are in already"
        self._outer = self._capture()
        (self._current or self._fresh()).restore()
        return self

    def __exit__(self, *exc_info: object) -> None:
        assert self._outer is not None
        self._current = self._capture()
        self._outer.restore()
        self._outer = None

    def _capture(self) -> _Captured:
        dicts = [
            part.__dict__[name] if name else part.__dict__
            for part in self._parts
            for name in ("", *_OWN_DICTS)
        ]
        tensors = {id(value): value for held in dicts for value in _tensors(held)}
        return _Captured(
            dicts=tuple((held, dict(held)) for held in dicts),
            data=tuple((tensor, tensor.data) for tensor in tensors.values()),
        )

    def _fresh(self) -> _Captured:
        """The initial contents, with buffers and containers of their own."""
        data = [(tensor, self._fresh_data(tensor, data)) for tensor, data in self._pristine.data]
        dicts = [
            (live, items | {name: _copy(items[name], self._others) for name in names} if names else items)
            for (live, items), names in zip(self._pristine.dicts, self._containers, strict=True)
        ]
        return _Captured(dicts=tuple(dicts), data=tuple(data))

    def _find_containers(self) -> list[list[str]]:
        """For each captured dict: the attributes whose value a call may change in place."""
        own = {id(part.__dict__) for part in self._parts}
        return [
            [name for name, value in items.items() if name not in _OWN_DICTS and type(value) in _CONTAINERS]
            if id(live) in own
            else []
            for live, items in self._pristine.dicts
        ]

    def _fresh_data(self, tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            return self._others(data.clone())
        changed = self._parameters.get(id(tensor), data)
        return changed.clone() if id(tensor) in self._written else changed


def _changed(pristine: _Captured, change: Change | None) -> dict[int, torch.Tensor]:
    if change is None:
        return {}
    return {
        id(tensor): change(data) for tensor, data in pristine.data if isinstance(tensor, torch.nn.Parameter)
    }


def _tensors(held: dict[str, Any]) -> Iterator[torch.Tensor]:
    return (value for value in held.values() if isinstance(value, torch.Tensor))


def _copy(value: Any, change: Change) -> Any:
    """Copy containers all the way down, and the tensors in them; anything else is shared."""
    kind = type(value)
    if kind is dict:
        return {key: _copy(each, change) for key, each in value.items()}
    if kind in _CONTAINERS:
        return kind(_copy(each, change) for each in value)
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        return change(value.detach().clone())
    return value
