"""Which of the tensors that a model keeps are views of one memory, and which of them calls write in place.

A program keeps each in a buffer of its own, where a write through one would not be seen through the other.
`Sharing.check` refuses that.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
import torch
from torch import nn

from aotpipe.canonicalize.alias import tensor_storage
from aotpipe.canonicalize.state import layouts
from aotpipe.canonicalize.state.slots import State, StateRefused
from aotpipe.model import object_graph

# Whether two views of one memory have an element in common takes a search, which is given up after this.
_MOST_WORK = 10_000


class Sharing:
    """What shares memory in a model, before its calls, after those that were watched and in a trace."""

    def __init__(self, module: nn.Module, state: State | None) -> None:
        self._module = module
        self._pairs: dict[str, str] = {}
        self._names = {name: names for names in _registered_twice(module) for name in names}
        self._given: dict[str, torch.Tensor] = {}
        self._parted: set[str] = set()
        self._written: set[str] = set()
        self._buffers: list[tuple[str, torch.Tensor, int]] = []
        own = list(_own(module))
        self._add(own)
        for snapshots in state.snapshots if state else ():
            self._add([*own, *_named(layouts.leaves_at(state.roots, snapshots) if state else ())])

    def begin(self) -> None:
        """A call is traced: what is registered was not written by it yet."""
        self._buffers = [
            (name, buffer, object_graph.writes(buffer)) for name, buffer in self._module.named_buffers()
        ]
        self._given = self.held()

    def held(self) -> dict[str, torch.Tensor]:
        """The registered buffers by name, also those of several names."""
        return dict(self._module.named_buffers(remove_duplicate=False))

    def end(
        self,
        held: Mapping[str, torch.Tensor],
        given: Mapping[str, torch.Tensor],
        left: Mapping[str, torch.Tensor],
    ) -> None:
        """The call is traced: it left the buffers `held`; of the state it was given and left tensors."""
        self._written.update(
            name for name, buffer, count in self._buffers if object_graph.writes(buffer) > count
        )
        self._written.update(name for name, tensor in given.items() if object_graph.writes(tensor) > 0)
        for name, names in self._names.items():
            is_one = all(held.get(other) is held.get(name) for other in names)
            is_changed = name in self._written or held.get(name) is not self._given.get(name)
            if name in held and is_changed and not is_one:
                self._parted.add(name)
        self._add([*held.items(), *left.items()])

    def check(self) -> None:
        """Refuse a tensor that was written in place where another one of its memory is kept.

        Raises:
            StateRefused: There is one.
        """
        for name in sorted(self._written & self._pairs.keys()):
            self._refuse(
                name, f"shares memory with `{self._pairs[name]}`, and a call writes to one of them in place"
            )
        for name in sorted(self._parted):
            other = next(each for each in self._names[name] if each != name)
            self._refuse(
                name, f"has the second name `{other}`, and a call writes to one of them or assigns it"
            )

    def _refuse(self, name: str, what: str) -> None:
        path = tuple(name.split("."))
        roots = object_graph.roots_of(object_graph.modules_of(self._module))
        own = object_graph.Root(name, self._module, vars(self._module), path[0])
        raise StateRefused(
            next((root for root in roots if root.path == name), own),
            path,
            what,
            "keep one of the two and take the other from it in each call, or keep a copy (`.clone()`)",
        )

    def _add(self, kept: Iterable[tuple[str, torch.Tensor]]) -> None:
        by_memory: defaultdict[int, dict[int, tuple[str, torch.Tensor]]] = defaultdict(dict)
        for name, tensor in kept:
            for memory in _memories(tensor):
                by_memory[memory].setdefault(id(tensor), (name, tensor))
        for found in by_memory.values():
            for (one, left), (other, right) in _near(found.values()):
                if one != other and _overlap(left, right):
                    self._pairs.setdefault(one, other)
                    self._pairs.setdefault(other, one)


def _registered_twice(module: nn.Module) -> Iterator[list[str]]:
    """The names of each buffer that has several: torch.export takes them for one."""
    names = defaultdict(list)
    for name, buffer in module.named_buffers(remove_duplicate=False):
        names[id(buffer)].append(name)
    for name, tensor in _own(module):
        if id(tensor) in names and name not in names[id(tensor)]:
            names[id(tensor)].append(name)
    return (each for each in names.values() if len(each) > 1)


def _own(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that a model holds, by name."""
    yield from module.named_parameters()
    yield from module.named_buffers()
    for root in object_graph.roots_of(object_graph.modules_of(module)):
        if not root.is_buffer:
            yield from _named(layouts.leaves_at([root], [layouts.snapshot_at(root)]))


def _named(leaves: Iterable[tuple[layouts.Path, layouts.Leaf]]) -> Iterator[tuple[str, torch.Tensor]]:
    for path, leaf in leaves:
        if isinstance(leaf.value, torch.Tensor):
            yield layouts.shown(path), leaf.value


def _memories(tensor: torch.Tensor) -> Iterable[int]:
    """The identities of the memories that a tensor may be in: one, unless it comes of a branch or a loop."""
    if type(tensor) in (torch.Tensor, nn.Parameter):
        storage = tensor_storage.storage_of(tensor)
        return (storage,) if storage and tensor.numel() else ()
    alias_set = tensor_storage.of(tensor)
    return alias_set.numbers if alias_set else ()


def _near(kept: Collection[tuple[str, torch.Tensor]]) -> Iterator[tuple[tuple[str, torch.Tensor], ...]]:
    """The pairs of tensors of one memory whose bytes, from the first to the last, have some in common.

    All weights of a model may be in the memory of the file that they were read from.
    """
    ranges = sorted(((*_bytes(tensor), (name, tensor)) for name, tensor in kept), key=operator.itemgetter(0))
    for at, (_, end, one) in enumerate(ranges):
        for start, _, other in itertools.islice(ranges, at + 1, None):
            if start >= end:
                break
            yield one, other


def _bytes(tensor: torch.Tensor) -> tuple[float, float]:
    if type(tensor) not in (torch.Tensor, nn.Parameter):
        return 0, math.inf
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    first = tensor.storage_offset() * tensor.element_size()
    return int(first), int(first + (reach + 1) * tensor.element_size())


def _overlap(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors of one memory have an element in common, or may have."""
    if tensor_storage.storage_of(left) != tensor_storage.storage_of(right):
        return True  # one is a copy of the other in the trace
    size = left.untyped_storage().nbytes()
    numbers = (
        size,
        *(
            number
            for each in (left, right)
            for number in (*each.shape, *each.stride(), each.storage_offset())
        ),
    )
    if any(type(number) is not int for number in numbers):
        return True  # where sizes vary, to compare them would fix them
    # The memory is only addressed here, so that one that is not there will do.
    memory = np.empty(size, np.uint8)
    views = []
    for tensor in (left, right):
        width = tensor.element_size()
        start = memory[tensor.storage_offset() * width :]
        strides = (*(step * width for step in tensor.stride()), 1)
        views.append(np.lib.stride_tricks.as_strided(start, (*tensor.shape, width), strides))
    try:
        return np.shares_memory(views[0], views[1], max_work=_MOST_WORK)  # type: ignore[arg-type]  # its stub knows two of them
    except np.exceptions.TooHardError:
        return True
