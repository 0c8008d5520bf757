"""A trace whose asserts are written down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from aotpipe.canonicalize.rewrite import staging


@contextmanager
def asserting(*, holds: bool) -> Iterator[list[str]]:
    """A trace in which asserts are written down; whether they hold from then on."""
    said: list[str] = []
    with staging.staging(torch.nn.Identity()) as made:
        assert made.operators is not None

        def require(_: object, error: Exception) -> bool:
            said.append(f"{type(error).__name__}: {error}")
            return holds

        made.operators = replace(made.operators, require=require)
        yield said
