"""The models that the lines call, built by a process of their own: who loads a bundle has no torch.

usage: python -m tests.trust.models NAME OUT TARGET...
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROWS: Final = 1000
WIDTH: Final = 64


def build(name: str, out: Path, *targets: str) -> Path:
    """Build a model in another process; gives its bundle."""
    argv = [sys.executable, "-P", "-m", "tests.trust.models", name, str(out), *targets]
    subprocess.run(argv, check=True, cwd=Path(__file__).resolve().parents[2], stdout=subprocess.DEVNULL)
    return out


def _built(name: str, out: str, *targets: str) -> None:
    import torch
    from torch import Tensor, nn

    import aotpipe

    class Rows(nn.Module):
        """Rows of a table, each of which is its own number."""

        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.arange(float(ROWS))[:, None].expand(ROWS, 16).clone())

        def forward(self, ids: Tensor) -> Tensor:
            return self.table[ids]

    class Product(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return a @ b

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.arange(float(WIDTH)))

        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            return self.scale[ids] * x + x.sum(-1, keepdim=True)

    class Picked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(10, 4))

        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            return x + self.table[ids]

    ids = torch.arange(4096) % ROWS
    n, m = aotpipe.Dim("n", min=1, max=4096), aotpipe.Dim("m", min=1, max=4096)
    batch = aotpipe.Dim("batch", min=1, max=8)
    on_xla = targets[0].startswith("xla")
    rows: dict[str, dict[str, Any]] = {
        "declared": {"model": Rows(), "args": (ids,), "value_ranges": {"ids": (0, ROWS - 1)}},
        "guarded": {"model": Rows(), "args": (ids,)},
        "reshaped": {
            "model": Product(),
            "args": (torch.ones(64, 16), torch.ones(16, 8)),
            "dynamic_shapes": {"a": {0: n, 1: m}, "b": {0: m}},
            **({"buckets": {"n": [16, 64, 256], "m": [4, 16, 64]}} if on_xla else {}),
        },
        "scaled": {
            "model": Scaled(),
            "args": (torch.ones(4, WIDTH), torch.arange(WIDTH)),
            "value_ranges": {"ids": (0, WIDTH - 1)},
        },
        "picked": {
            "model": Picked(),
            "args": (torch.ones(4, 4), torch.arange(4)),
            "value_ranges": {"ids": (0, 9)},
            "dynamic_shapes": {"x": {0: batch}, "ids": {0: batch}},
            **({"buckets": {"batch": [4, 8]}} if on_xla else {}),
        },
    }
    options = rows[name]
    aotpipe.build(options.pop("model"), targets=targets, latency=False, out=out, **options)


if __name__ == "__main__":
    _built(*sys.argv[1:])
