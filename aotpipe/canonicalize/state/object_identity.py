"""Which names of what a model keeps lead to one container, object or tensor, and whether that stays so.

A program keeps the elements of each name in buffers of that name, and fills the containers for each call. Two
names of one list see each other's changes as long as they are names of one list after each call, too.
`ObjectIdentity.check` refuses a model of which a call gives one of them another list, and one of which a call
lets two names have one list that calls change in place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import nn

from aotpipe.canonicalize.alias import effects
from aotpipe.canonicalize.state import layouts
from aotpipe.canonicalize.state.layouts import Node, Path, Slot, Snapshot, Tree
from aotpipe.canonicalize.state.slots import State, StateRefused
from aotpipe.model import object_graph
from aotpipe.model.object_graph import Root

_HINT: Final = "keep one of the two and take the other from it in each call, or keep a copy of its own there"


class ObjectIdentity:
    """The containers and objects that a model keeps, as calls that are traced begin and end."""

    def __init__(self, module: nn.Module, state: State) -> None:
        self._module = module
        self._roots = state.roots
        self._known = {root.identity for root in (*state.roots, *state.unread)}
        self._fixed: dict[Path, Any] = {}
        self._begun: dict[Path, tuple[Any, Any]] = {}
        self._changed: set[Path] = set()
        self._split: dict[Path, Path] = {}
        self._merged: list[tuple[Path, Path]] = []
        self._buffers: dict[str, tuple[torch.Tensor, int]] = {}
        self._written: set[str] = set()
        # Names of one tensor that later calls part have a slot each from the first call on.
        self._shared = list(self._tensors_of_two(state.phases()[0], state.first))

    def begin(self, form: Sequence[Node]) -> None:
        """A call begins: the model holds what a form describes."""
        lives = self._lives(form)
        self._begun = {path: (live, object_graph.contents(live)) for path, live in lives.items()}
        known = {root.path for root in self._roots}
        self._buffers = {
            name: (buffer, object_graph.writes(buffer))
            for name, buffer in self._module.named_buffers()
            if name not in known
        }
        mine = {id(live) for live in lives.values()}
        self._fixed = dict(self._others(mine)) if mine else {}

    def leave(self) -> None:
        """The call has run, and what it left is still in place."""
        for path, (live, before) in self._begun.items():
            if not _holds_the_same(object_graph.contents(live), before):
                self._changed.add(path)

    def end(self, form: Sequence[Node], left: Sequence[Snapshot], taken: Mapping[str, torch.Tensor]) -> None:
        """The call has ended, and the next one begins with the form that describes what it left.

        `taken` are the tensors of the slots with which this one began.
        """
        self._written.update(name for name, tensor in taken.items() if object_graph.writes(tensor) > 0)
        self._written.update(
            name for name, (buffer, count) in self._buffers.items() if object_graph.writes(buffer) > count
        )
        self._shared += self._tensors_of_two(form, left)
        begins = self._lives(form) | self._fixed
        ends = self._lives(left) | self._fixed
        # A branch or a loop gives a container of its own for what is one of several in eager.
        may_be = {path: [id(each) for each in effects.originals(live)] for path, live in ends.items()}
        of_one = defaultdict(list)
        for path, live in begins.items():
            of_one[id(live)].append(path)
        for first, *others in of_one.values():
            for other in others:
                if may_be.get(first) != may_be.get(other) or len(may_be.get(first, ())) != 1:
                    self._split.setdefault(other, first)
        found = defaultdict(list)
        for path, objects in may_be.items():
            for each in objects:
                found[each].append(path)
        for first, *others in found.values():
            self._merged += [(first, other) for other in others if begins.get(first) is not begins.get(other)]

    def check(self) -> None:
        """Refuse names that have one object before some call, and several before another.

        Raises:
            StateRefused: There are such names, and a call would tell.
        """
        for path, other in self._split.items():
            self._refuse(path, f"is a second name of `{layouts.shown(other)}`, and not after each call")
        for one, other in self._merged:
            if self._changed & {one, other}:
                name = layouts.shown(other)
                self._refuse(
                    one, f"may be a second name of `{name}` after a call, and one is changed in place"
                )
        for one, other, slots in self._shared:
            if self._written & slots:
                name = layouts.shown(other)
                self._refuse(one, f"is a second name of `{name}` after a call, and one is written in place")

    def _refuse(self, path: Path, what: str) -> None:
        name, *_ = path
        own = Root(name, self._module, vars(self._module), name)
        root = next((root for root in self._roots if root.path == name), own)
        raise StateRefused(root, path, what, _HINT)

    def _tensors_of_two(
        self, form: Sequence[Node], left: Sequence[Snapshot]
    ) -> Iterator[tuple[Path, Path, set[str]]]:
        """The names of one tensor for which the next call gets two, with the slots of these."""
        slots = {
            path: slot.name
            for root, node in zip(self._roots, form, strict=True)
            for path, slot in layouts.leaves_of(node, (root.path,))
            if isinstance(slot, Slot) and not slot.number
        }
        names: dict[int, list[Path]] = defaultdict(list)
        for name, (buffer, _) in self._buffers.items():
            slots[name,] = name
            names[id(buffer)].append((name,))
        for path, leaf in layouts.leaves_at(self._roots, left):
            if isinstance(leaf.value, torch.Tensor) and path in slots:
                names[id(leaf.value)].append(path)
        for first, *others in names.values():
            for other in others:
                if slots[first] != slots[other]:
                    yield first, other, {slots[first], slots[other]}

    def _lives(self, form: Iterable[Node]) -> dict[Path, Any]:
        """What can be changed in place under each path of a form."""
        return {
            path: live
            for root, node in zip(self._roots, form, strict=True)
            for path, live in _changeable(node, (root.path,))
        }

    def _others(self, mine: set[int]) -> Iterator[tuple[Path, Any]]:
        """Those of them that names which no call changes lead to."""
        for root in object_graph.roots_of(object_graph.modules_of(self._module)):
            if root.identity not in self._known and not root.is_buffer:
                yield from _reached(root.held[root.key], (root.path,), mine)


def _changeable(node: Node, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(node, Tree):
        if not isinstance(node.live, tuple):
            yield path, node.live
        for name, child in zip(node.names, node.children, strict=False):
            yield from _changeable(child, (*path, name))


def _reached(value: Any, path: Path, among: set[int]) -> Iterator[tuple[Path, Any]]:
    seen: set[int] = set()
    left = [(path, value)]
    while left:
        path, value = left.pop()
        is_one = object_graph.is_container(value) or type(value) is tuple or object_graph.is_object(value)
        if id(value) in seen or not is_one:
            continue
        seen.add(id(value))
        if id(value) in among:
            yield path, value
        left += [((*path, name), item) for name, item in object_graph.items_of(value)]


def _holds_the_same(left: Any, right: Any) -> bool:
    """Whether a container holds the very objects that it held."""
    if isinstance(left, Mapping):
        return left.keys() == right.keys() and all(left[key] is right[key] for key in left)
    if isinstance(left, set):
        return bool(left == right)
    return len(left) == len(right) and all(one is other for one, other in zip(left, right, strict=True))
