"""Texts that a model makes of numbers that only a run knows: torch would write `u0`, and go on.

`str(n)`, `f"{n}"` and their kin, where `n` came of a tensor, give the name of torch's symbol: a key that is
not there, or silently the wrong one. Inside of `refused()` they raise in a model's code, which is then
rewritten; what is only printed is left out there, and the rest refused at its line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from aotpipe import source

_KINDS: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)


class MadeText(RuntimeError):
    """A model made a text of a traced number."""


@contextmanager
def refused() -> Iterator[None]:
    """Inside, a model's code that makes a text of a traced number raises `MadeText`."""
    before: list[Any] = [kind.__repr__ for kind in _KINDS]
    for kind, written in zip(_KINDS, before, strict=True):
        kind.__repr__ = _watched(written)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for kind, written in zip(_KINDS, before, strict=True):
            kind.__repr__ = written  # type: ignore[method-assign]


def _watched(written: Callable[[Any], str]) -> Callable[[Any], str]:
    def shown(number: Any) -> str:
        # `str` and formats have no frame of their own: the caller's is that of the code that asks for a text.
        if source.is_user_file(sys._getframe(1).f_code.co_filename) and free_unbacked_symbols(number):  # noqa: SLF001
            raise MadeText("data-dependent: a text is made of a number that only a run knows")
        return written(number)

    return shown
