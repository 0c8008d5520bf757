"""What the compiler's command line is given: each `apply` is a `Rule` or a `Fallback`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aotpipe.core.targets import Target


@dataclass(frozen=True, slots=True)
class Rule:
    """A flag that is passed where a module and its targets call for it, and why."""

    flag: str
    reason: str
    applies: Callable[[bytes, Sequence[Target]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """A more cautious set of flags, tried where the compiler fails.

    Attributes:
        name: Completes the sentence "compiled ...".
        drop: Prefixes of flags to leave out.
        add: Flags that come last.
        needs: Where this flag is not among them, the set stays as it is.
        after: A pattern of the failed compile's words; the empty one matches all.
        fixes_numbers: Whether it leaves out what was seen to give wrong numbers.
    """

    name: str
    drop: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    needs: str = ""
    after: str = ""
    fixes_numbers: bool = False

    def __call__(self, flags: Sequence[str]) -> tuple[str, ...]:
        """The cautious form of a set of flags; equal to it where nothing of it is dropped or added."""
        if self.needs and self.needs not in flags:
            return tuple(flags)
        kept = [flag for flag in flags if not (self.drop and flag.startswith(self.drop))]
        return (*kept, *(flag for flag in self.add if flag not in kept))
