"""The sizes of a Dim that there are programs for: declared, or planned from its range. Torch-free.

    1,8,64          programs of these sizes; a call of another one is padded up to the next
    exact:1,8,64    the same, and nothing is padded: a call has one of these sizes
    auto            the fewest sizes of which no call wastes more than half of a program on padding
    auto:25%        the same for another share

`Buckets.of` reads one of these or a sequence of sizes, `planned` turns them into the `Ladder` of each Dim.
Raises `NoBuckets`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from aotpipe.core.serialization import Serializable
from aotpipe.core.signature import Symbol
from aotpipe.errors import NoBuckets

WASTE: Final = 0.5
"""The share of a program's work that a call may waste where none is named."""
_EXACT: Final = "exact:"
_AUTO: Final = re.compile(r"auto(?::(\d+(?:\.\d+)?)%)?")
# torch.export writes "no end" as a number of this size or larger.
_ENDLESS: Final = 1 << 31

Declared = Sequence[int] | str


@dataclass(frozen=True, slots=True)
class Buckets(Serializable):
    """What is declared of a Dim: sizes, or the share that may be wasted where they are to be planned."""

    sizes: tuple[int, ...] = ()
    exact: bool = False
    waste: float | None = None

    @classmethod
    def of(cls, name: str, given: Declared | Self) -> Self:
        """Read what is given for a Dim.

        Raises:
            NoBuckets: It is no sizes.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, str):
            if found := _AUTO.fullmatch(given):
                waste = float(found[1]) / 100 if found[1] else WASTE
                if not 0 < waste < 1:
                    raise NoBuckets(
                        f"a share of {given!r} cannot be padding", hint=f"such as {name}=auto:25%"
                    )
                return cls(waste=waste)
            exact = given.startswith(_EXACT)
            words = given.removeprefix(_EXACT).split(",")
            if not all(word.strip().isdecimal() for word in words):
                raise _no_sizes(name)
            return cls(tuple(sorted(set(map(int, words)))), exact)
        assert not isinstance(given, Buckets), given
        sizes = tuple(sorted(set(given)))
        if not sizes or sizes[0] < 0:
            raise _no_sizes(name)
        return cls(sizes)


def within(declared: Buckets, low: int, high: int | None, taken: Symbol) -> Buckets:
    """The sizes declared of a Dim from `low` to `high` of which the model takes those of `taken` alone.

    A size of the Dim beyond these becomes the nearest one, or is left out where no call is padded. One that
    is none of the Dim stays, and is refused when programs are planned.
    """
    found = []
    for size in declared.sizes:
        nearest = max(size, taken.min) if taken.max is None else min(max(size, taken.min), taken.max)
        if nearest == size or size < low or (high is not None and size > high):
            found.append(size)
        elif not declared.exact:
            found.append(nearest)
    return replace(declared, sizes=tuple(sorted(set(found))))


def _no_sizes(name: str) -> NoBuckets:
    return NoBuckets(
        f"the buckets of {name!r} are no sizes", hint=f"such as --buckets {name}=1,8 or --buckets {name}=auto"
    )


@dataclass(frozen=True, slots=True)
class Ladder:
    """The sizes of a Dim that there are programs for, in order; `exact` where no call is padded to them."""

    sizes: tuple[int, ...]
    exact: bool = False
    planned: bool = False

    def waste(self, least: int) -> float:
        """The largest share of a program that is padding, for any call that there is a program for."""
        if self.exact:
            return 0.0
        starts = [max(least, 1), *(size + 1 for size in self.sizes)]
        return max(
            (1 - start / size for start, size in zip(starts, self.sizes, strict=False) if size), default=0.0
        )

    def edges(self, least: int) -> list[int]:
        """The sizes at which a call goes to another program, and those just before."""
        if self.exact:
            return list(self.sizes)
        starts = [least, *(size + 1 for size in self.sizes[:-1])]
        found = {*starts, *self.sizes, *(size - 1 for size in self.sizes)}
        return sorted(size for size in found if size >= least)


def planned(symbols: Sequence[Symbol], declared: Mapping[str, Buckets]) -> dict[str, Ladder]:
    """The ladders of those Dims that something is declared of.

    Raises:
        NoBuckets: A size is outside of its Dim's range, or a range has no end.
    """
    automatic = [symbol for symbol in symbols if (own := declared.get(symbol.name)) and own.waste is not None]
    found: dict[str, Ladder] = {}
    for symbol in symbols:
        own = declared.get(symbol.name)
        if own is None:
            continue
        if own.waste is not None:
            # What is wasted of one Dim is wasted for every size of the others.
            share = 1 - (1 - own.waste) ** (1 / len(automatic))
            found[symbol.name] = Ladder(_fewest(symbol, share), planned=True)
            continue
        for size in own.sizes:
            if size < symbol.min or (symbol.max is not None and size > symbol.max):
                raise NoBuckets(
                    f"the bucket {size} is outside of the Dim {symbol}", hint="name a size within its range"
                )
        found[symbol.name] = Ladder(own.sizes, own.exact)
    return found


def _fewest(symbol: Symbol, waste: float) -> tuple[int, ...]:
    """The fewest sizes that waste no more than a share; of those the ones that waste least."""
    if symbol.max is None or symbol.max >= _ENDLESS:
        raise NoBuckets(
            f"the Dim {symbol} has no end, and the sizes of its programs cannot be planned",
            hint=f"give it a max, or declare the sizes: --buckets {symbol.name}={max(symbol.min, 1)},...",
        )
    count = len(_downwards(symbol.min, symbol.max, waste))
    low, high = 0.0, waste
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (
            (low, middle) if len(_downwards(symbol.min, symbol.max, middle)) <= count else (middle, high)
        )
    return _downwards(symbol.min, symbol.max, high)


def _downwards(least: int, most: int, waste: float) -> tuple[int, ...]:
    """Sizes from the largest on, each as far below the one before as the share allows."""
    sizes, size = [most], math.ceil(most * (1 - waste) - 1e-9) - 1
    while size >= max(least, 1):
        sizes.append(size)
        size = math.ceil(size * (1 - waste) - 1e-9) - 1
    return tuple(reversed(sizes))


def described(symbol: Symbol, ladder: Ladder) -> str:
    """Describe a planned ladder for people."""
    sizes = ",".join(map(str, ladder.sizes))
    share = f"{ladder.waste(symbol.min):.0%}"
    return f"the sizes of {symbol} are planned as {symbol.name}={sizes}: at most {share} of a size is padding"


def takes(built: Mapping[str, int], padded: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
    """Whether a program computes calls of some sizes.

    It was built for the sizes `built`; of `padded` Dims a call may have less, down to the size named.
    """
    return all(
        sizes[name] == size or (name in padded and padded[name] <= sizes[name] < size)
        for name, size in built.items()
    )
