"""A fixed size for what only a call knows the number of: the entries of a buffer, the tokens of an expert.

`capacity(needed, max=64)` is 64 in eager PyTorch and in every program: one program of fixed sizes does for
all calls, where a size that depends on data or on the batch would be another one in each. What is needed must
fit: eager raises ValueError where it does not, a program fails an assert. Importing this imports no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

assert_in_trace: ContextVar[Callable[[Any, str], bool] | None] = ContextVar("assert_in_trace", default=None)
"""Puts an assert into the graph of the trace that runs; False where its condition is no traced value."""


def capacity(needed: Any, *, max: int) -> int:  # noqa: A002  # as Dim's
    """The bound, if what is needed fits.

    Args:
        needed: A number of Python's, a size, or a tensor of one element.
        max: The bound, which is the result.

    Raises:
        ValueError: More is needed, in eager PyTorch.
    """
    said = f"more than the capacity of {max} is needed"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(needed, (torch.Tensor, torch.SymInt, torch.SymFloat)):
        _require(torch, needed <= max, said)
    elif not needed <= max:
        raise ValueError(f"{said}: {needed}")
    return max


def _require(torch: Any, fits: Any, said: str) -> None:
    """Raise in eager PyTorch where the condition is false; put an assert into a graph."""
    in_trace = assert_in_trace.get()
    if in_trace is not None and in_trace(fits, f"ValueError: {said}"):
        return
    if isinstance(fits, torch.Tensor) and torch.compiler.is_exporting():
        torch._assert_async(fits, said)  # noqa: SLF001  # what torch.export keeps
    elif isinstance(fits, torch.Tensor):
        if not bool(fits):
            raise ValueError(said)
    else:
        torch._check(fits, lambda: said)  # noqa: SLF001  # what users write
