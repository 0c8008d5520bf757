"""How a causal language model becomes a decoder, as `--decoder cache=1024,slots=8` says it. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Self

from aotpipe.errors import SpecInvalid

PROMPT_LENGTH: Final = "length"
"""The Dim of a prompt's tokens."""
_EXAMPLE: Final = "write --decoder cache=1024,slots=8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The sizes of a decoder.

    Attributes:
        cache: How many tokens a slot holds, those of the prompt and those after it.
        slots: How many texts are gone on with at once.
        prompt: How long a prompt may be; as long as the cache where 0.
    """

    cache: int
    slots: int = 1
    prompt: int = 0

    def __post_init__(self) -> None:
        if not self.prompt:
            object.__setattr__(self, "prompt", self.cache)
        if self.slots < 1 or not 2 <= self.prompt <= self.cache:
            raise SpecInvalid(
                f"a decoder of {self} holds no text",
                reason="it needs a slot, and a prompt of 2 tokens at least, which the cache holds",
                hint=_EXAMPLE,
            )

    @classmethod
    def of(cls, given: str | Self) -> Self:
        """Read `cache=1024,slots=8,prompt=512`; `of(str(recipe)) == recipe`.

        Raises:
            SpecInvalid: It names no sizes of a decoder.
        """
        if isinstance(given, cls):
            return given
        names = [field.name for field in fields(cls)]
        sizes = dict(part.partition("=")[::2] for part in str(given).replace(" ", "").split(","))
        if "cache" not in sizes or sizes.keys() - set(names) or not all(map(str.isdecimal, sizes.values())):
            raise SpecInvalid(
                f"{str(given)[:80]!r} are no sizes of a decoder",
                reason=f"the sizes are: {', '.join(names)}, of which cache is needed",
                hint=_EXAMPLE,
            )
        return cls(**{name: int(size) for name, size in sizes.items()})

    def __str__(self) -> str:
        return f"cache={self.cache},slots={self.slots},prompt={self.prompt}"
