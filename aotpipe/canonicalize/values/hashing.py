"""Numbers that only a run knows as keys of dicts and members of sets: Python would take each for another one.

A tensor is its own key, so that `counts[n] = 1` and `n in seen` never find an equal number. Inside of
`refused()` asking such a number for its hash is refused, in a model's code; libraries may keep tables.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from aotpipe.canonicalize.values.refusals import refusal
from aotpipe.canonicalize.values.trace import OPERATORS_MODULE
from aotpipe.model import source


@contextmanager
def refused(is_host_scalar: Callable[[object], bool]) -> Iterator[None]:
    """Refuse the hash of what stands for a number."""
    before: Any = torch.Tensor.__hash__

    def hashed(tensor: torch.Tensor) -> int:
        # What asks for a hash in C, a dict or a set, has no frame of its own.
        if is_host_scalar(tensor) and _is_model(sys._getframe(1)):  # noqa: SLF001
            raise refusal(
                "a number that is known to a run of the graph only is a key of a dict or in a set",
                "compare it with each key, or index a tensor by it",
                "number-from-tensor",
            )
        found: int = before(tensor)
        return found

    torch.Tensor.__hash__ = hashed  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.__hash__ = before  # type: ignore[method-assign]


def _is_model(frame: Any) -> bool:
    return (
        source.is_user_file(frame.f_code.co_filename) or frame.f_globals.get("__name__") == OPERATORS_MODULE
    )
