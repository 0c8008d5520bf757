"""Carries over the border of a branch or a loop which memory its results would be in, if eager ran it.

What a region gives is a copy: of what was around it or of what it made. `Border` gives each result the
numbers of the memories from around it that it may be in; a memory that was made inside gets the number of
the first result that is in it. So two iterations of a loop never give one number to two memories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.alias import tensor_storage
from aotpipe.canonicalize.alias.tensor_storage import AliasSet
from aotpipe.canonicalize.values import host_scalars, trace
from aotpipe.canonicalize.values.abstract_values import AbstractValue, Leaf
from aotpipe.canonicalize.values.optional_values import OptionalValue

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
        self._first = tensor_storage.new_numbers(_MOST)

    def stabilized(self, names: Sequence[Names], last_given: int) -> list[Names]:
        """Give a result its own number where each iteration makes its memory anew."""
        return [each.since(last_given, self._first + at) for at, each in enumerate(names)]

    def noted(self, names: Sequence[Names], begun: Sequence[Names], last_given: int) -> list[Notes]:
        """The names that the results of a loop settled to, for another run of it to begin with.

        Args:
            names: Of each result.
            begun: What it began with.
            last_given: The lowest number that the trace had given before.
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
                elif kind == "around" and tensor_storage.is_known(at):
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
        return found if isinstance(found, torch.Tensor) else _full(found)

    def register(
        self,
        abstracts: Sequence[AbstractValue],
        values: Sequence[Any],
        names: Sequence[Names],
        known: Sequence[torch.Tensor],
    ) -> None:
        """Say of results, or of what a loop carries, which memory they would be in."""
        found = dict(zip(counted(abstracts, names), known, strict=False))
        for at, ((_, tensors), own) in enumerate(zip(_tensors(abstracts, values), names, strict=True)):
            for tensor in tensors:
                number = own.only if own.only is not None else found.get(at)
                tensor_storage.register(tensor, own.numbers, number, own.partial)


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
    found = list(paths[0])
    for path in paths[1:]:
        found = [one | other for one, other in zip(found, path, strict=True)]
    return found


def _parts(
    abstracts: Sequence[AbstractValue], values: Sequence[Any], alias_set_of: AliasSetOf
) -> list[_Part]:
    found = []
    for grows, tensors in _tensors(abstracts, values):
        part = _Part()
        for tensor in tensors:
            if (alias_set := alias_set_of(tensor)) is not None:
                whole = not grows and alias_set.is_like(tensor)
                names = Names(alias_set.numbers, alias_set.partial if whole else alias_set.numbers)
                part = _Part(part.names | names, None if grows else alias_set.known)
        found.append(part)
    return found


def _tensors(
    abstracts: Sequence[AbstractValue], values: Sequence[Any]
) -> Iterator[tuple[bool, tuple[torch.Tensor, ...]]]:
    """For each result that may be written in place: whether it is a list that grows, and what it is of."""
    for abstract, whole in zip(abstracts, values, strict=True):
        value = abstract.payload(whole)
        if abstract.fitted:
            tensors = (each for each in pytree.tree_leaves(value) if isinstance(each, torch.Tensor))
            yield True, tuple(each for each in tensors if not host_scalars.is_host_scalar(each))
            continue
        for leaf, given in abstract.parts(value):
            tensor = given.payload if isinstance(given, OptionalValue) else given
            if not leaf.number:
                yield False, (tensor,) if isinstance(tensor, torch.Tensor) else ()


def results(abstract: AbstractValue) -> list[object]:
    """The results of an abstract value that may be written in place, in the order of `_tensors`."""
    if abstract.fitted:
        return [abstract]
    return [leaf for leaf in abstract.leaves if isinstance(leaf, Leaf) and not leaf.number]


def _either(test: bool | torch.Tensor, then: int | torch.Tensor, other: int | torch.Tensor) -> Any:
    if isinstance(test, bool):
        return then if test else other
    return torch.where(test, _full(then), _full(other))


def _full(number: int | torch.Tensor) -> torch.Tensor:
    return number if isinstance(number, torch.Tensor) else torch.full((), number, dtype=torch.int64)
