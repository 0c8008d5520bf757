"""Which memory each tensor of a trace would be in, if eager ran it.

A graph's branches and loops give copies of what eager would give another name of. Each memory has a number;
a tensor has the numbers of those that it may be in. Where there are several and they are `followed`, a traced
number tells which: it is computed beside the tensor. Numbers count up, so that what a region makes has higher
ones than what is around it; what the trace was given has negative ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.values import trace

_NO_NUMBERS: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class AliasSet:
    """What is known of a tensor's memory.

    Attributes:
        tensor: One that has the whole of it.
        numbers: Which it may be.
        known: Which it is, as a traced number where only a run knows; None where that is not followed.
        partial: Those of which it is, or may be, something other than a copy of the whole.
    """

    tensor: torch.Tensor
    numbers: frozenset[int]
    known: int | torch.Tensor | None
    partial: frozenset[int] = _NO_NUMBERS

    def is_like(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor of this memory has the whole of it, in the same order."""
        own = self.tensor
        return tensor is own or (
            _shown(tensor.shape) == _shown(own.shape)
            and _shown(tensor.stride()) == _shown(own.stride())
            and str(tensor.storage_offset()) == str(own.storage_offset())
        )


def _shown(sizes: Any) -> tuple[str, ...]:
    return tuple(map(str, sizes))


class _Book:
    def __init__(self) -> None:
        self.found: dict[int, AliasSet] = {}
        # The storages of each number, in the order in which they came.
        self.of_number: dict[int, dict[int, None]] = {}
        # Of an operand's memory, that of the tensor which it stands for.
        self.owners: dict[int, int] = {}
        self.undo: list[tuple[dict[int, Any], int, Any]] = []
        self.next = 0
        self.next_given = -1

    def put(self, table: dict[int, Any], key: int, value: Any) -> None:
        """Set an entry, which is taken back at the end of the scope."""
        self.undo.append((table, key, table.get(key)))
        table[key] = value

    def take_back(self, mark: int) -> None:
        while len(self.undo) > mark:
            table, key, value = self.undo.pop()
            if table is self.found:
                for number in table[key].numbers:
                    del self.of_number[number][key]
            if value is None:
                del table[key]
            else:
                table[key] = value
            if table is self.found and value is not None:
                self._index(key, value)

    def enter(self, storage: int, alias_set: AliasSet) -> None:
        if (old := self.found.get(storage)) is not None:
            for number in old.numbers:
                del self.of_number[number][storage]
        self.put(self.found, storage, alias_set)
        self._index(storage, alias_set)

    def _index(self, storage: int, alias_set: AliasSet) -> None:
        for number in alias_set.numbers:
            self.of_number.setdefault(number, {})[storage] = None


@contextmanager
def scope() -> Iterator[None]:
    """Forget afterwards what the body makes."""
    book = trace.part(_Book)
    mark = len(book.undo)
    try:
        yield
    finally:
        book.take_back(mark)


def storage_of(tensor: torch.Tensor) -> int:
    """The identity of a tensor's memory in the trace itself; 0 of one that has no single one."""
    with torch._C.DisableTorchFunction():  # noqa: SLF001  # inside of a region a mode gives an operand's
        if tensor.layout != torch.strided:
            return 0
        return int(tensor.untyped_storage()._cdata)  # noqa: SLF001  # it has no public name


def owner_of(tensor: torch.Tensor) -> int:
    """The identity of the memory of the tensor that an operand, or a view of one, stands for."""
    storage = storage_of(tensor)
    owners = trace.part(_Book).owners
    while (owner := owners.get(storage)) is not None and owner != storage:
        storage = owner
    return storage


def stands_for(operand: torch.Tensor, tensor: torch.Tensor) -> None:
    """Take an operand of an op, and views of it, for a tensor from outside."""
    if storage_of(operand) and storage_of(tensor):
        book = trace.part(_Book)
        book.put(book.owners, storage_of(operand), owner_of(tensor))


def made(result: Any, given: Iterable[Any]) -> None:
    """Number what a call made of what it was given."""
    for each in given:
        for tensor in _tensors(each):
            _first_seen(tensor, new=False)
    for tensor in _tensors(result):
        _first_seen(tensor, new=True)


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return (value,)
    if isinstance(value, list | tuple):
        return [each for each in pytree.tree_leaves(value) if isinstance(each, torch.Tensor)]
    return ()


def _first_seen(tensor: torch.Tensor, *, new: bool) -> None:
    storage, book = owner_of(tensor), trace.part(_Book)
    if not storage or storage in book.found:
        return
    if new:
        number = new_numbers(1)
        book.enter(storage, AliasSet(tensor, frozenset({number}), number))
        return
    # Not taken back: what is met first in an iteration of a loop is the same in the next one.
    number = book.next_given = book.next_given - 1
    book.found[storage] = AliasSet(tensor, frozenset({number}), number)
    book.of_number[number] = {storage: None}


def last_given() -> int:
    """The lowest number of what the trace was given so far; what it is given from now on has lower ones."""
    return trace.part(_Book).next_given


def new_numbers(count: int) -> int:
    """The first of some numbers that no memory has."""
    book = trace.part(_Book)
    first, book.next = book.next, book.next + count
    return first


def register(
    tensor: torch.Tensor,
    numbers: frozenset[int],
    known: int | torch.Tensor | None,
    partial: frozenset[int] = _NO_NUMBERS,
) -> None:
    """Say which memory a tensor, which is a copy in the graph, would have in eager."""
    trace.part(_Book).enter(storage_of(tensor), AliasSet(tensor, numbers, known, partial))


def of(tensor: torch.Tensor) -> AliasSet | None:
    """What is known of a tensor's memory; None for one that has none of its own."""
    _first_seen(tensor, new=False)
    return trace.part(_Book).found.get(owner_of(tensor))


def others(alias_set: AliasSet) -> Iterator[AliasSet]:
    """The alias sets of other tensors that may be in the same memory."""
    own, book = owner_of(alias_set.tensor), trace.part(_Book)
    for storage in dict.fromkeys(
        each for number in alias_set.numbers for each in book.of_number.get(number, ())
    ):
        if storage != own:
            yield book.found[storage]


def is_known(number: int) -> bool:
    """Whether some tensor may be in the memory of this number now."""
    return bool(trace.part(_Book).of_number.get(number))
