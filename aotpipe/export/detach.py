"""`.data` of a traced tensor: torch's own leaves the trace, and the program would lack what it holds.

Inside of `traced()` it is `.detach()` in a model's code, which shares memory with its tensor as `.data` does:
reads and writes through it are part of the graph. What is assigned to it is written into the tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from aotpipe.model import source


@contextmanager
def traced() -> Iterator[None]:
    """Inside, a model's code that asks for `.data` gets a tensor that torch.export sees."""
    original: Any = torch.Tensor.data

    def data(tensor: torch.Tensor) -> torch.Tensor:
        if source.is_model_code(sys._getframe(1).f_code.co_filename):  # noqa: SLF001  # no other way to a caller
            return tensor.detach()
        found: torch.Tensor = original.__get__(tensor)
        return found

    def assign(tensor: torch.Tensor, value: torch.Tensor) -> None:
        if not source.is_model_code(sys._getframe(1).f_code.co_filename):  # noqa: SLF001
            original.__set__(tensor, value)
        elif (tensor.shape, tensor.dtype) != (value.shape, value.dtype):
            raise RuntimeError(
                f"`.data` of a {tensor.dtype} of shape {tuple(tensor.shape)} is assigned "
                f"a {value.dtype} of shape {tuple(value.shape)}"
            )
        else:
            tensor.detach().copy_(value)

    # torch.Tensor inherits it, so that what is set here is its only own.
    kind: Any = torch.Tensor
    kind.data = property(data, assign)
    try:
        yield
    finally:
        if isinstance(original, property):
            kind.data = original
        else:
            del kind.data
