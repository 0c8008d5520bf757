"""Texts that a model makes of what only a run knows: torch would write `u0` or `FakeTensor(...)`, and go on.

`str(n)`, `f"{n}"` and their kin, where `n` is a tensor or a number that came of one, give the name of
torch's symbol: a key that is not there, or silently the wrong one. Inside of `refused()` they raise in a
model's code, which is then rewritten; what is only printed is left out there, the rest refused at its line.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensor  # what torch.export calls the model with
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from aotpipe.canonicalize.values import refusals
from aotpipe.model import source

_KINDS: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)


class MadeText(RuntimeError):
    """A model made a text of a traced number."""


@contextmanager
def refused() -> Iterator[None]:
    """Inside, a model's code that makes a text of a traced number raises `MadeText`."""
    before: list[Any] = [kind.__repr__ for kind in _KINDS]
    for kind, written in zip(_KINDS, before, strict=True):
        kind.__repr__ = _watched(written)  # type: ignore[method-assign]
    of_tensor = torch.Tensor.__repr__
    torch.Tensor.__repr__ = _watched_of_tensor(of_tensor)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.Tensor.__repr__ = of_tensor  # type: ignore[method-assign, assignment]
        for kind, written in zip(_KINDS, before, strict=True):
            kind.__repr__ = written  # type: ignore[method-assign]


def _watched(written: Callable[[Any], str]) -> Callable[[Any], str]:
    def shown(number: Any) -> str:
        # `str` and formats have no frame of their own: the caller's is that of the code that asks for a text.
        if source.is_user_file(sys._getframe(1).f_code.co_filename) and free_unbacked_symbols(number):  # noqa: SLF001
            if refusals.is_message():
                return "..."
            raise MadeText("data-dependent: a text is made of a number that only a run knows")
        return written(number)

    return shown


# What stands between the code that asks for a tensor's text and `__repr__`.
_BETWEEN: Final = {"__format__", "__torch_function__", "_called", "handle_torch_function", "inside"}
_TALK: Final = {"print", "debug", "info", "warning", "warn", "error", "critical", "exception", "log"}


def _watched_of_tensor(written: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(written)
    def shown(tensor: torch.Tensor, **contents: Any) -> str:
        if isinstance(tensor, FakeTensor) and tensor.constant is None:
            frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
            while frame is not None and frame.f_code.co_name in _BETWEEN:
                frame = frame.f_back
            if frame is not None and source.is_user_file(frame.f_code.co_filename) and not _is_talk(frame):
                if refusals.is_message():
                    return "..."
                raise MadeText("data-dependent: a text is made of a tensor, which only a run knows")
        return written(tensor, **contents)

    return shown


def _is_talk(frame: FrameType) -> bool:
    """Whether a frame is in a statement that prints or logs, and no more."""
    tree = source.syntax(frame.f_code.co_filename)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = ast.unparse(node.value.func).rpartition(".")[2]
            if called in _TALK and node.lineno <= frame.f_lineno <= (node.end_lineno or node.lineno):
                return True
    return False
