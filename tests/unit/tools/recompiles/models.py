"""Models whose calls torch.compile takes several programs for, each for another reason."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from aotpipe.canonicalize import canonicalize
from aotpipe.core.stages import Canonical
from aotpipe.model.spec import Dim, as_spec

N = Dim("n", min=1, max=8)


class Counting(nn.Module):
    """Counts its calls and decides on a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1  # the line of the counter
        if x.sum() > 0:  # the line of the decision
            x = x * 2
        return x + self.count


class Scaled(nn.Module):
    """Takes a size and a number."""

    def forward(self, x: torch.Tensor, k: int = 2) -> torch.Tensor:
        y = x * 2  # the line of the size
        return y * k  # the line of the number


def line_of(words: str) -> int:
    """The line of this file that a comment names."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {words}"))


def canonical(module: nn.Module, *args: object) -> Canonical:
    """Ready for export, with a first size that varies."""
    return canonicalize(as_spec(module.eval(), args=args, dynamic_shapes={"x": {0: N}}))
