"""Generators that decide on tensors: their code runs with the loop's body in the place of `yield`.

`Generated` is what a call of a function that yields gives; `grouped` stands for `itertools.groupby`.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from aotpipe.canonicalize.alias import effects
from aotpipe.canonicalize.operators import logic
from aotpipe.canonicalize.trace import dry_run, regions
from aotpipe.canonicalize.trace.torch_functions import is_staged
from aotpipe.canonicalize.values import trace
from aotpipe.canonicalize.values.abstract_values import Variables
from aotpipe.canonicalize.values.trace import refusal


class Generated:
    """A generator whose code has not run yet.

    Attributes:
        run: Runs it, and gives what it returns; takes what is called with each value, which tells whether to
            stop.
        result: What it returned.
        ends_late: Whether it runs more of its code where a loop leaves it, once nobody has it any more.
    """

    def __init__(self, run: Callable[[Callable[[Any], Any]], Any], *, ends_late: bool = False) -> None:
        self.run = run
        self.ends_late = ends_late
        self.result: Any = None
        self._begun = False
        self._may_be_left = False
        self._is_running = False
        self._depth = dry_run.depth()

    def close(self) -> None:
        """Let nothing be left, as in Python.

        Raises:
            ExportFailed: A tensor decides whether it is closed, or the loop over it runs.
        """
        if self._is_running or dry_run.depth() != self._depth:
            raise refusal(
                "a generator that decides on a tensor is closed inside of a branch or a loop",
                "close it after them, or leave the loop over it with `break`",
            )
        self._begun, self._may_be_left = True, False

    def each(self, take: Callable[[Any], Any]) -> None:
        """Call a function with every value; nothing is left afterwards, as in Python.

        Raises:
            ExportFailed: An earlier loop may have left some, or it ends later than the loop that leaves it.
        """
        if self._begun:
            if self._may_be_left:
                raise refusal(
                    "a generator that decides on a tensor is gone on with after a loop that may have left it",
                    "make a list of it, and loop over that",
                )
            return
        self._begun = True

        def taken(item: Any) -> Any:
            stop = take(item)
            self._may_be_left |= stop is not None
            if self.ends_late and stop is not None and stop is not False and effects.is_held(self):
                raise refusal(
                    "a generator that has a name is left at a `yield` inside of `try` or `with`: how that "
                    "ends is seen when the generator is closed",
                    "loop over the call that gives it, which ends it with the loop: `for v in steps(x)`",
                )
            return stop

        self._is_running = True
        try:
            self.result = self.run(taken)
        finally:
            self._is_running = False

    def first(self, count: int) -> Generated:
        """What yields the first `count` values, and lets the generator run no further."""

        def run(take: Callable[[Any], Any]) -> None:
            taken: list[Any] = [0]

            def limited(item: Any) -> Any:
                stop = take(item)
                taken[0] = taken[0] + 1
                is_last = taken[0] >= count
                return is_last if stop is None else logic.or_(lambda: is_last, lambda: stop)

            if count > 0:
                self.each(limited)

        return Generated(run)

    def __iter__(self) -> Iterator[Any]:
        # In a function that is not rewritten yet: then it will be.
        raise refusal(
            "a generator that decides on a tensor is used other than by `for`",
            "loop over it with `for`, or make a list of it",
        )

    __next__ = __iter__


class Groups(Generated):
    """What `itertools.groupby` gives where a tensor decides where a group ends; each group is a list."""

    def __init__(self, items: Sequence[Any], keys: Sequence[Any]) -> None:
        super().__init__(self._each)
        self._items = items
        self._keys = keys

    def comprehended(self, elementwise: Callable[[Any], Any]) -> list[Any]:
        """The list of what a comprehension makes of the groups; `elementwise` gives tests and elements."""
        elements: list[Any] = []

        def take(group: Any) -> None:
            ((wanted, element),) = elementwise((group,))
            watched = Variables.of_list([], watched=lambda: (("elements", elements), ("element", element)))
            _where(wanted(), lambda: elements.append(element()), watched)

        self.each(take)
        return elements

    def _each(self, take: Callable[[Any], Any]) -> None:
        # A group begins with its key; it is given when another key comes, unless the loop was left before.
        held: list[Any] = [[], None, False]
        variables = Variables.of_list(held, "group", "key", "stopped", watched=lambda: (("take", take),))

        def give(key: Any) -> None:
            def given() -> None:
                stop = take((held[1], held[0]))
                held[2] = False if stop is None else stop

            _where(logic.not_(held[2]), given, variables)
            held[0], held[1] = [], key

        for item, key in zip(self._items, self._keys, strict=True):
            if held[0]:
                _where(_differ(held[1], key), partial(give, key), variables)
            else:
                held[1] = key
            held[0] = [*held[0], item]
        if held[0]:
            give(None)


def _differ(one: Any, other: Any) -> Any:
    if isinstance(one, tuple) and isinstance(other, tuple):
        different = [logic.not_(left == right) for left, right in zip(one, other, strict=False)]
        return len(one) != len(other) or logic.folded(different, decides=True)
    return logic.not_(one == other)


def _where(test: Any, then: Callable[[], None], variables: Variables) -> None:
    """`if test: then()`."""
    if is_staged(test):
        regions.branch(test, then, lambda: None, variables)
    elif test:
        then()


def grouped(items: Any, key: Callable[[Any], Any] | None = None) -> Iterator[Any]:
    """`itertools.groupby(items, key)` of items of which the number is known."""
    found = list(items)
    keys = found if key is None else [trace.operators().call(key, each) for each in found]
    if any(is_staged(part) for each in keys for part in (each if isinstance(each, tuple) else (each,))):
        return Groups(found, keys)
    pairs = itertools.groupby(zip(keys, found, strict=True), key=operator.itemgetter(0))
    return ((common, (item for _, item in group)) for common, group in pairs)
