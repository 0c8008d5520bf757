"""Swaps what a model holds, in place: parameters, buffers, tensors, Python attributes, also its objects'.

A model may reach its tensors through closures, bound methods and shared dicts that a deep copy would not
follow, so the very modules of the user run, with other contents. `Contents` is one such set: `with contents`
puts it in and, at the end, the user's back; `reset` makes it initial again. The user's own tensors are never
written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import torch

from aotpipe.model import object_graph
from aotpipe.model.object_graph import OWN

Change = Callable[[torch.Tensor], torch.Tensor]

_CONTAINERS: Final = frozenset({list, tuple, set, deque, dict})


@dataclass(frozen=True, slots=True)
class _Captured:
    """References to what the owners refer to at one moment."""

    owners: Sequence[tuple[Any, dict[str, Any]]]
    data: Sequence[tuple[torch.Tensor, torch.Tensor]]

    def restore(self) -> None:
        for live, items in self.owners:
            object_graph.refill(live, items)
        for tensor, data in self.data:
            tensor.data = data


class Contents:
    """One set of contents of some modules, initially a changed copy of the user's.

    Args:
        modules: With all their submodules.
        parameters: What becomes of each parameter, once; None leaves them the user's own.
        others: What becomes of buffers, and of tensors in attributes and in lists and dicts of them.
        written: Parameters that a call changes: each reset makes them anew, as it does buffers.
        only_written: Leave other parameters the user's own.
    """

    def __init__(
        self,
        modules: Iterable[torch.nn.Module],
        *,
        parameters: Change | None,
        others: Change,
        written: Iterable[torch.nn.Parameter] = (),
        only_written: bool = False,
    ) -> None:
        reached = [object_graph.reached(module) for module in modules]
        # Two modules may share one __dict__ (a method as a module of its own).
        parts = {id(vars(part)): vars(part) for found, _ in reached for part in found.values()}
        objects = {id(each): each for _, plain in reached for each in plain}
        self._owners: tuple[Any, ...] = (
            *(own[name] if name else own for own in parts.values() for name in ("", *OWN)),
            *objects.values(),
        )
        self._others = others
        self._written = {id(parameter) for parameter in written}
        self._pristine = self._capture()
        # For each holder: the attributes whose value a call may change in place.
        self._containers = [
            (
                live,
                items,
                [key for key, each in items.items() if type(each) in _CONTAINERS and key not in OWN],
            )
            for live, items in self._pristine.owners
        ]
        self._parameters = {
            id(tensor): parameters(data)
            for tensor, data in self._pristine.data
            if parameters is not None
            and isinstance(tensor, torch.nn.Parameter)
            and (id(tensor) in self._written or not only_written)
        }
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
        owners = [(live, object_graph.contents(live)) for live in self._owners]
        values = {id(value): value for _, items in owners for value in items.values()}
        data = [(value, value.data) for value in values.values() if isinstance(value, torch.Tensor)]
        return _Captured(owners, data)

    def _fresh(self) -> _Captured:
        """The initial contents, with buffers and containers of their own."""
        data = [(tensor, self._fresh_data(tensor, data)) for tensor, data in self._pristine.data]
        owners = [
            (live, items | {name: _copy(items[name], self._others) for name in names} if names else items)
            for live, items, names in self._containers
        ]
        return _Captured(owners, data)

    def _fresh_data(self, tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            return self._others(data.clone())
        changed = self._parameters.get(id(tensor), data)
        return changed.clone() if id(tensor) in self._written else changed


def _copy(value: Any, change: Change) -> Any:
    """Copy containers all the way down, and the tensors in them; anything else is shared."""
    kind = type(value)
    if kind is dict:
        return {key: _copy(each, change) for key, each in value.items()}
    if kind is deque:
        return deque((_copy(each, change) for each in value), value.maxlen)
    if kind in _CONTAINERS:
        return kind(_copy(each, change) for each in value)
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        return change(value.detach().clone())
    return value
