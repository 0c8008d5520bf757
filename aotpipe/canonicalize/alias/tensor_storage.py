"""Which memory each tensor of a trace would be in, if eager ran it.

A graph's branches and loops give copies of what eager would give another name of. Each memory has a number;
a tensor has the numbers of those that it may be in. Where there are several and they are `followed`, a traced
number tells which: it is computed beside the tensor. Numbers count up, so that what a region makes has higher
ones than what is around it; what the trace was given has negative ones.

What a region gives is a copy: of what was around it or of what it made. `Border` gives each result the
numbers of the memories from around it that it may be in; a memory that was made inside gets the number of
the first result that is in it. So two iterations of a loop never give one number to two memories.
"""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, Final, Literal, NamedTuple

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._subclasses.fake_tensor import FakeTensor  # what torch.export calls the model with
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.values import host_scalars, structures, trace
from aotpipe.canonicalize.values.abstract_values import AbstractValue
from aotpipe.canonicalize.values.optional_values import OptionalValue
from aotpipe.canonicalize.values.trace import refusal

_NO_NUMBERS: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class AliasSet:
    """What is known of a tensor's memory.

    Attributes:
        tensor: One that has the whole of it.
        known: Which it is, as a traced number where only a run knows; None where that is not followed.
        partial: Those of which it is, or may be, something other than a copy of the whole.
    """

    tensor: torch.Tensor
    numbers: frozenset[int]
    known: int | torch.Tensor | None
    partial: frozenset[int] = _NO_NUMBERS

    def is_like(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor of this memory has the whole of it, in the same order."""
        return tensor is self.tensor or layout_of(tensor) == layout_of(self.tensor)


def layout_of(tensor: torch.Tensor) -> tuple[str, ...]:
    """A tensor's sizes, strides and offset, as texts: comparing symbols themselves would guard on them."""
    numbers: Iterable[object] = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    return tuple(map(str, numbers))


@dataclass(slots=True)
class _Book:
    """The memories of a trace; each scope has a table of its own on top of those around it.

    Attributes:
        owners: Of an operand's memory, that of the tensor which it stands for.
        met: The storages that were in the memory of each number, also in scopes that have ended.
        bases: Of a view of one of the model's own tensors, which has a memory of its own in a trace: that of
            the tensor, and the view, so that no other tensor gets its address.
    """

    found: ChainMap[int, AliasSet] = field(default_factory=ChainMap)
    owners: ChainMap[int, int] = field(default_factory=ChainMap)
    met: defaultdict[int, dict[int, None]] = field(default_factory=lambda: defaultdict(dict))
    bases: dict[int, tuple[int, torch.Tensor]] = field(default_factory=dict)
    next: int = 0
    next_given: int = -1

    def enter(self, table: MutableMapping[int, AliasSet], storage: int, alias_set: AliasSet) -> None:
        table[storage] = alias_set
        for number in alias_set.numbers:
            self.met[number][storage] = None

    def storages(self, number: int) -> list[int]:
        """Those that may be in the memory of a number now."""
        met = self.met.get(number, ())
        return [each for each in met if each in self.found and number in self.found[each].numbers]


@contextmanager
def scope() -> Iterator[None]:
    """Forget afterwards what the body makes."""
    book = trace.part(_Book)
    found, owners = book.found, book.owners
    book.found, book.owners = found.new_child(), owners.new_child()
    try:
        yield
    finally:
        book.found, book.owners = found, owners


def storage_of(tensor: torch.Tensor) -> int:
    """The identity of a tensor's memory in the trace itself; 0 of one that has no single one."""
    address = _address(tensor)
    base = trace.part(_Book).bases.get(address)
    return address if base is None else base[0]


def _address(tensor: torch.Tensor) -> int:
    if is_functorch_wrapped_tensor(tensor):
        # It has no memory of its own, and torch's ops of branches and loops take none.
        raise refusal(
            "code that decides on a tensor runs a function under `torch.vmap` or a gradient of `torch.func`",
            "write it over a batch dim: `x * weight.unsqueeze(-1)` in place of "
            "`torch.vmap(lambda w: x * w)(weight)`",
        )
    with torch._C.DisableTorchFunction():  # noqa: SLF001  # inside of a region a mode gives an operand's
        if tensor.layout != torch.strided:
            return 0
        return int(tensor.untyped_storage()._cdata)  # noqa: SLF001  # it has no public name


def note_views(base: object, views: Iterable[torch.Tensor]) -> None:
    """Note which memory views of one of the model's own tensors are in: the trace gives them another."""
    if type(base) not in (torch.Tensor, torch.nn.Parameter):
        return
    assert isinstance(base, torch.Tensor)
    for view in views:
        if isinstance(view, FakeTensor) and (address := _address(view)):
            trace.part(_Book).bases[address] = (storage_of(base), view)


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
        trace.part(_Book).owners[storage_of(operand)] = owner_of(tensor)


def made(result: Any, given: Iterable[Any]) -> None:
    """Number what a call made of what it was given."""
    given = list(given)
    views = (tensor for tensor in _tensors(result) if tensor._is_view())  # noqa: SLF001  # it has no public name
    note_views(given[0] if given else None, views)
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
        table: MutableMapping[int, AliasSet] = book.found
        number = new_numbers(1)
    else:
        # Not forgotten: what is met first in an iteration of a loop is the same in the next one.
        table = book.found.maps[-1]
        number = book.next_given = book.next_given - 1
    book.enter(table, storage, AliasSet(tensor, frozenset({number}), number))


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
    book = trace.part(_Book)
    book.enter(book.found, storage_of(tensor), AliasSet(tensor, numbers, known, partial))


def of(tensor: torch.Tensor) -> AliasSet | None:
    """What is known of a tensor's memory; None for one that has none of its own."""
    _first_seen(tensor, new=False)
    return trace.part(_Book).found.get(owner_of(tensor))


def others(alias_set: AliasSet) -> Iterator[AliasSet]:
    """The alias sets of other tensors that may be in the same memory."""
    own, book = owner_of(alias_set.tensor), trace.part(_Book)
    found = dict.fromkeys(each for number in alias_set.numbers for each in book.storages(number))
    return (book.found[storage] for storage in found if storage != own)


def is_known(number: int) -> bool:
    """Whether some tensor may be in the memory of this number now."""
    return bool(trace.part(_Book).storages(number))


# More than a region has results.
_MOST: Final = 1 << 20
AliasSetOf = Callable[[torch.Tensor], AliasSet | None]


@dataclass(frozen=True, slots=True)
class Names:
    """The numbers of the memories that a result may be in, and those of which it may be a part."""

    numbers: frozenset[int] = frozenset()
    partial: frozenset[int] = frozenset()

    def __or__(self, other: Names) -> Names:
        return Names(self.numbers | other.numbers, self.partial | other.partial)

    def since(self, last_given: int, own: int) -> Names:
        """With a number of its own in place of those that were given after others."""
        return Names(
            frozenset(own if number < last_given else number for number in self.numbers),
            frozenset(own if number < last_given else number for number in self.partial),
        )

    @property
    def only(self) -> int | None:
        """The only number."""
        return next(iter(self.numbers)) if len(self.numbers) == 1 else None


@dataclass(frozen=True, slots=True)
class _Part:
    """What is known inside of what becomes a result; `known` is None of a list that grows, too."""

    names: Names = Names()
    known: int | torch.Tensor | None = None

    def is_surely_in(self, other: _Part) -> bool:
        """Whether both are in one memory, as is known before the run; nothing is put into the graph."""
        return isinstance(self.known, int) and isinstance(other.known, int) and self.is_in(other) is True

    def is_in(self, other: _Part) -> bool | torch.Tensor:
        """Whether both are in one memory."""
        if self.known is None or other.known is None or not self.names.numbers & other.names.numbers:
            return False
        return self.known == other.known


class Note(NamedTuple):
    """A number of a result of a loop, as another run of the same loop finds it.

    Attributes:
        kind: Its own (of the result `at`), one that the result `at` begins with, or one from around it.
        at: That place, or the number itself.
        which: Of those that the result begins with, in order.
    """

    kind: Literal["own", "begun", "around"]
    at: int
    which: int = 0


Notes = tuple[frozenset[Note], frozenset[Note]]
"""Of a result: of its numbers, and of those of which it may be a part."""


class Border:
    """The border of one region: what is made inside of it has higher numbers than the border's own."""

    def __init__(self) -> None:
        self._first = new_numbers(_MOST)

    def stabilized(self, names: Sequence[Names], last_given: int) -> list[Names]:
        """Give a result its own number where each iteration makes its memory anew."""
        return [each.since(last_given, self._first + at) for at, each in enumerate(names)]

    def noted(self, names: Sequence[Names], begun: Sequence[Names], last_given: int) -> list[Notes]:
        """The names that the results of a loop settled to, for another run of it to begin with.

        `last_given` is the lowest number that the trace had given before.
        """
        known: dict[int, Note] = {}
        for at, each in enumerate(begun):
            for which, number in enumerate(sorted(each.numbers)):
                known.setdefault(number, Note("begun", at, which))

        def note(number: int) -> Note:
            if number >= self._first:
                return Note("own", number - self._first)
            return known.get(number) or Note("around", number)

        def notes(numbers: frozenset[int]) -> frozenset[Note]:
            return frozenset(note(number) for number in numbers if number >= last_given)

        return [(notes(each.numbers), notes(each.partial)) for each in names]

    def recalled(self, notes: Sequence[Notes], begun: Sequence[Names]) -> list[Names]:
        """The names that another run noted, as far as they mean something in this one."""
        known = [sorted(each.numbers) for each in begun]

        def numbers(noted: frozenset[Note]) -> Iterator[int]:
            for kind, at, which in noted:
                if kind == "own":
                    yield self._first + at
                elif kind == "around" and is_known(at):
                    yield at
                elif kind == "begun" and which < len(known[at]):
                    yield known[at][which]

        return [Names(frozenset(numbers(whole)), frozenset(numbers(part))) for whole, part in notes]

    def names(
        self, abstracts: Sequence[AbstractValue], values: Sequence[Any], alias_set_of: AliasSetOf
    ) -> list[Names]:
        """Of each result that may be written in place, for the values on one path."""
        parts = _parts(abstracts, values, alias_set_of)
        return [self._names(parts, at) for at in range(len(parts))]

    def _names(self, parts: Sequence[_Part], at: int) -> Names:
        part, own = parts[at], self._first + at
        inner = frozenset(number for number in part.names.numbers if number >= self._first)
        outer = Names(part.names.numbers - inner, part.names.partial - inner)
        if not inner and part.names.numbers:
            return outer
        before = [each for each in range(at) if parts[each].names.numbers & inner]
        if not outer.numbers and not part.names.partial:
            for each in before:
                if parts[each].is_surely_in(part) and parts[each].names == part.names:
                    return Names(frozenset({self._first + each}))
        new = frozenset({own, *(self._first + each for each in before)})
        return outer | Names(new, new if part.names.partial & inner else frozenset())

    def known(
        self,
        abstracts: Sequence[AbstractValue],
        values: Sequence[Any],
        names: Sequence[Names],
        alias_set_of: AliasSetOf,
    ) -> list[torch.Tensor]:
        """The traced numbers of the results that need one (`counted`)."""
        parts = _parts(abstracts, values, alias_set_of)
        return [self._known(parts, at) for at in counted(abstracts, names)]

    def _known(self, parts: Sequence[_Part], at: int) -> torch.Tensor:
        part = parts[at]
        found: Any = self._first + at
        for each in reversed(range(at)):
            found = _either(parts[each].is_in(part), self._first + each, found)
        if part.known is not None and any(number < self._first for number in part.names.numbers):
            found = _either(part.known < self._first, part.known, found)
        return host_scalars.as_int64(found)

    def register(
        self,
        abstracts: Sequence[AbstractValue],
        values: Sequence[Any],
        names: Sequence[Names],
        known: Sequence[torch.Tensor],
    ) -> None:
        """Note which memory the results of a region, or the values that a loop carries, would be in."""
        found = dict(zip(counted(abstracts, names), known, strict=False))
        for at, ((_, tensors), own) in enumerate(zip(_result_tensors(abstracts, values), names, strict=True)):
            for tensor in tensors:
                number = own.only if own.only is not None else found.get(at)
                register(tensor, own.numbers, number, own.partial)


def counted(abstracts: Sequence[AbstractValue], names: Sequence[Names]) -> list[int]:
    """The places of the results whose memory a traced number tells."""
    if not trace.current().exact_aliases:
        return []
    grows = [abstract.fitted is not None for abstract in abstracts for _ in results(abstract)]
    return [
        at for at, (own, grow) in enumerate(zip(names, grows, strict=True)) if own.only is None and not grow
    ]


def joined(*paths: Sequence[Names]) -> list[Names]:
    """The names of results that come of one of several paths."""
    return [reduce(or_, each) for each in zip(*paths, strict=True)]


def _parts(
    abstracts: Sequence[AbstractValue], values: Sequence[Any], alias_set_of: AliasSetOf
) -> list[_Part]:
    found = []
    for grows, tensors in _result_tensors(abstracts, values):
        part = _Part()
        for tensor in tensors:
            if (alias_set := alias_set_of(tensor)) is not None:
                whole = not grows and alias_set.is_like(tensor)
                names = Names(alias_set.numbers, alias_set.partial if whole else alias_set.numbers)
                part = _Part(part.names | names, None if grows else alias_set.known)
        found.append(part)
    return found


def _result_tensors(
    abstracts: Sequence[AbstractValue], values: Sequence[Any]
) -> Iterator[tuple[bool, tuple[torch.Tensor, ...]]]:
    """Yield for each result that may be written in place whether it is a growing list, and its tensors."""
    for abstract, value in zip(abstracts, values, strict=True):
        if abstract.fitted:
            tensors = structures.tensors_in(value)
            yield True, tuple(each for each in tensors if not host_scalars.is_host_scalar(each))
            continue
        for leaf, given in abstract.parts(value):
            tensor = given.payload_of_optional if isinstance(given, OptionalValue) else given
            if not leaf.number:
                yield False, (tensor,) if isinstance(tensor, torch.Tensor) else ()


def results(abstract: AbstractValue) -> list[object]:
    """The results of an abstract value that may be written in place, in the order of `_result_tensors`."""
    if abstract.fitted:
        return [abstract]
    return [leaf for leaf in abstract.computed if not leaf.number]


def _either(test: bool | torch.Tensor, then: int | torch.Tensor, other: int | torch.Tensor) -> Any:
    if isinstance(test, bool):
        return then if test else other
    return torch.where(test, host_scalars.as_int64(then), host_scalars.as_int64(other))
