"""The marks of functions that stay Python: a host calls no function of a bundle without one. Torch-free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

Arrays = Literal["torch", "numpy"]

MARK: Final = "__aotpipe_island__"
"""The attribute of a marked function that holds its `Mark`."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A marked function.

    Attributes:
        function: As the user wrote it.
        name: `module:function`, by which a host finds it.
        arrays: What it takes and gives: torch's tensors or numpy's arrays.
        reason: Why it is no part of a program.
    """

    function: Callable[..., Any]
    name: str
    arrays: Arrays
    reason: str


MARKS: Final[dict[str, Mark]] = {}
"""The marked functions of this process, by name."""


def mark_of(function: object) -> Mark | None:
    """The mark of a function; None where it has none."""
    return getattr(function, MARK, None)
