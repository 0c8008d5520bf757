"""Generators of a model: a `for` over one runs its own code, with the loop's body in the place of `yield`.

A graph has no place to wait in. Where a generator is used otherwise, all its values are computed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any

from aotpipe.canonicalize.trace.return_values import Unwritten
from aotpipe.canonicalize.values.refusals import refusal


class UndecidedGenerator(Unwritten):
    """A loop over a generator of Python's own ends where a tensor says so."""

    def __init__(self, generator: GeneratorType[Any, Any, Any]) -> None:
        refused = refusal(
            "a loop over a generator is left where a tensor says so",
            "loop over a range, or make a list of the generator",
        )
        super().__init__(generator.gi_code, refused)


class Generated:
    """A generator whose code has not run yet.

    Attributes:
        run: Runs it; takes what is called with each value and tells whether to stop.
    """

    def __init__(self, run: Callable[[Callable[[Any], Any]], Any]) -> None:
        self.run = run
        self._begun = False

    def each(self, take: Callable[[Any], Any]) -> None:
        """Call a function with every value; nothing is left afterwards, as in Python."""
        if not self._begun:
            self._begun = True
            self.run(take)

    def __iter__(self) -> Iterator[Any]:
        # In a function that is not rewritten yet: then it will be.
        raise refusal(
            "a generator that decides on a tensor is used other than by `for`",
            "loop over it with `for`, or make a list of it",
        )

    __next__ = __iter__


def listed(value: Any) -> Any:
    """All values of a generator as a list; any other value itself."""
    if not isinstance(value, Generated):
        return value
    items: list[Any] = []

    def take(item: Any) -> None:
        items.append(item)

    value.each(take)
    return items
