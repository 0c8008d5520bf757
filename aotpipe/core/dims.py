"""Sizes that vary between calls: a named `Dim`, sizes derived from it, and `AUTO`.

`Dim("batch", max=64)` is a size; one Dim in two places says that the two sizes are equal. `2 * d`, `d + 1`
and `d - 1` derive sizes from it, and `dim.value(dim.size(v)) == v`. `AUTO` leaves it to torch.export whether
a size can vary. Raises `SpecInvalid` for a Dim that no size fits. Torch-free.
"""

from __future__ import annotations

import keyword
from dataclasses import dataclass, replace
from typing import Final

from aotpipe.errors import SpecInvalid

_RESERVED: Final = frozenset({"Min", "Max"})


@dataclass(frozen=True, slots=True)
class Dim:
    """A dynamic size `scale*name + offset`; `min` and `max` bound `name`, both ends included.

    Args:
        name: An identifier; Dims of one name are one symbol and must agree on the range.
        min: The smallest size; 0 allows empty tensors.
        max: The largest size; None leaves it unbounded.
        scale, offset: Set by arithmetic: `2 * d + 1` has scale 2 and offset 1.
    """

    name: str
    min: int = 1
    max: int | None = None
    scale: int = 1
    offset: int = 0

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or keyword.iskeyword(self.name) or self.name in _RESERVED:
            raise SpecInvalid(f"{self.name!r} cannot name a Dim", hint="use an identifier such as `batch`")
        if self.min < 0:
            raise SpecInvalid(f"Dim {self.name!r} has min={self.min}", hint="sizes start at 0")
        if self.max is not None and self.max <= self.min:
            raise SpecInvalid(
                f"Dim {self.name!r} has min={self.min} and max={self.max}",
                hint="max must be larger than min; leave the Dim out where the size is fixed",
            )
        if self.scale < 1:
            raise SpecInvalid(f"Dim `{self}` shrinks as {self.name!r} grows", hint="use a positive factor")
        if self.scale * self.min + self.offset < 0:
            raise SpecInvalid(
                f"Dim `{self}` is negative for {self.name}={self.min}",
                hint=f"give {self.name!r} a larger min",
            )

    def __mul__(self, factor: int) -> Dim:
        return replace(self, scale=self.scale * factor, offset=self.offset * factor)

    def __add__(self, term: int) -> Dim:
        return replace(self, offset=self.offset + term)

    def __sub__(self, term: int) -> Dim:
        return self + -term

    __rmul__ = __mul__
    __radd__ = __add__

    def __str__(self) -> str:
        scaled = self.name if self.scale == 1 else f"{self.scale}*{self.name}"
        if not self.offset:
            return scaled
        return f"{scaled} {'-' if self.offset < 0 else '+'} {abs(self.offset)}"

    @property
    def root(self) -> Dim:
        """The Dim that this one was derived from; itself where it was not."""
        return replace(self, scale=1, offset=0)

    def size(self, value: int) -> int:
        """The size when `name` has this value."""
        return self.scale * value + self.offset

    def value(self, size: int) -> int | None:
        """The value of `name` that gives this size; None where no value does."""
        value, rest = divmod(size - self.offset, self.scale)
        return None if rest else value

    def admits(self, value: int) -> bool:
        """Whether `name` may have this value."""
        return self.min <= value and (self.max is None or value <= self.max)


@dataclass(frozen=True, slots=True)
class Auto:
    """A size that varies if the model allows it; calling it bounds it: `AUTO(max=512)`."""

    min: int | None = None
    max: int | None = None

    def __call__(self, *, min: int | None = None, max: int | None = None) -> Auto:  # noqa: A002 torch's names
        """Bound the size."""
        return Auto(min, max)


AUTO: Final = Auto()
"""Lets torch.export find out whether a size can vary; a finding names those that cannot."""
