"""Iterators that Python may go on with after a loop that a tensor left.

A `Cursor` is what `iter` gives of a sequence in a trace: it holds the elements that are left, so that a
branch or a loop may take from it. How far any other iterator was gone on with, only Python knows: where a
tensor decides on that, `note_left` remembers the iterator, and `refuse_left` refuses to go on with it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from aotpipe.canonicalize.alias import effects
from aotpipe.canonicalize.operators import dynamic_list_methods
from aotpipe.canonicalize.operators.conditional import choose
from aotpipe.canonicalize.trace import regions, runtime_asserts
from aotpipe.canonicalize.trace.torch_functions import is_staged, predicate, truth_of
from aotpipe.canonicalize.values import dynamic_list, trace
from aotpipe.canonicalize.values.abstract_values import Variables
from aotpipe.canonicalize.values.trace import refusal

_DEPTH = 4


class Cursor(Iterator[Any]):
    """An iterator over a list.

    Attributes:
        left: The elements that are left; the list is the iterator's own.
    """

    def __init__(self, left: list[Any], items: Any = None) -> None:
        self.left = list(left)
        self._items = items
        self._held = tuple(left)

    def rest(self) -> list[Any]:
        """The elements that are left.

        Raises:
            ExportFailed: The list was changed meanwhile, or a tensor decided how many are left elsewhere.
        """
        refuse_left(self)
        if any(each is self and part.left for each, part in trace.part(_Left).lent):
            raise _unknown_position()
        if isinstance(self._items, list) and not (
            len(self._items) == len(self._held) and all(map(_is_same, self._items, self._held))
        ):
            raise refusal(
                "a list is changed while an iterator goes through it",
                "loop over a copy (`iter(list(items))`)",
                "python-object-changed",
            )
        return self.left

    def taken(self) -> list[Any]:
        """All elements that are left; none is afterwards."""
        found = list(self.rest())
        self.left.clear()
        return found

    def lend(self, count: Any) -> Cursor:
        """`itertools.islice(self, count)`; the elements are taken at once."""
        left = dynamic_list_methods.opened(self.rest())
        found, self.left[:] = Cursor(left[:count]), left[count:]
        trace.part(_Left).lent.append((self, found))
        return found

    @property
    def is_dynamic(self) -> bool:
        """Whether a tensor decides how many elements are left."""
        return dynamic_list.is_dynamic_list(self.rest())

    def __iter__(self) -> Iterator[Any]:  # noqa: PYI034
        # What `[*self]` goes through: a growing list has one object in the place of its elements.
        return iter(self.taken()) if self.is_dynamic else self

    def __next__(self) -> Any:
        if self.is_dynamic:
            raise refusal(
                "an iterator of which a tensor decides how much is left, is used other than by Python's code",
                "make a list of it",
                "list-grows",
            )
        if not self.left:
            raise StopIteration
        return self.left.pop(0)

    def first(self, *default: Any) -> Any:
        """`next(self, *default)`."""
        left = self.rest()
        if not dynamic_list.is_dynamic_list(left):
            if left or default:
                return left.pop(0) if left else default[0]
            raise runtime_asserts.raised(StopIteration)
        is_filled = dynamic_list_methods.length(left) > 0
        if default:
            return choose(is_filled, lambda: dynamic_list_methods.popped(self.left, 0), lambda: default[0])
        runtime_asserts.require(is_filled, StopIteration(), holds=True)
        return dynamic_list_methods.popped(left, 0)

    def each(self, take: Callable[[Any], Any], stopped: Callable[[], object], variables: Variables) -> None:
        """`for item in self: take(item)`, until `stopped`; what is left then is left."""
        watched = variables.watched
        variables = replace(variables, watched=lambda: (*watched(), ("iterator", self)))

        def test() -> Any:
            is_filled, stop = dynamic_list_methods.length(self.rest()) > 0, stopped()
            if not is_staged(stop):
                return is_filled and not stop if not is_staged(is_filled) else not stop and is_filled
            if not is_staged(is_filled):
                return predicate(stop).logical_not() if is_filled else False
            return torch.logical_and(truth_of(is_filled), predicate(stop).logical_not())

        def step() -> None:
            take(dynamic_list_methods.popped(self.rest(), 0))

        step.__wrapped__ = take  # type: ignore[attr-defined]  # whose place in the source is the loop's
        while not is_staged(going := test()):
            if not going:
                return
            step()
        regions.loop(test, step, variables, most=dynamic_list.slots(self.left))


def _is_same(one: object, other: object) -> bool:
    return one is other


@dataclass(slots=True)
class _Left:
    """What is known of iterators that are not to be gone on with.

    Attributes:
        iterators: Those of which a tensor decided how far a trace went on with them.
        lent: Cursors, each with one that has elements of it, which are to be taken first.
    """

    iterators: list[Any] = field(default_factory=list)
    lent: list[tuple[Cursor, Cursor]] = field(default_factory=list)


def note_left(iterator: Any) -> None:
    """Note that a tensor decides how far an iterator is gone on with, and those that it goes through."""
    found = [*_through(iterator, _DEPTH)]
    found += [each for each, part in trace.part(_Left).lent if part is iterator]
    trace.part(_Left).iterators.extend(filter(effects.is_held, found))


def note_ended(items: Any) -> None:
    """Note that nothing is left of items that an iterator stands for in eager."""
    if effects.is_held(items):
        trace.part(_Left).iterators.append(items)


def _through(value: Any, depth: int) -> Iterator[Any]:
    """An iterator, and those from which it takes."""
    if isinstance(value, Iterator):
        yield value
    elif not isinstance(value, tuple):
        return
    for each in gc.get_referents(value) if depth and not isinstance(value, Cursor) else ():
        yield from _through(each, depth - 1)


def refuse_left(value: Any) -> None:
    """Refuse to go on with an iterator of which a tensor decided how far it was gone on with.

    Raises:
        ExportFailed: It is one.
    """
    if any(value is each for each in trace.part(_Left).iterators):
        raise _unknown_position()


def _unknown_position() -> Exception:
    return refusal(
        "an iterator is gone on with after a tensor decided how far a loop went through it",
        "make a list of it, and take its items by a number that counts",
        "python-object-changed",
    )
