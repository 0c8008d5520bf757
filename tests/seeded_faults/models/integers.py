"""Divisions, remainders and shifts of whole numbers."""

from __future__ import annotations

import torch

from aotpipe import EntryPoint, Spec


class Model(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> object:
        down = torch.div(a, b, rounding_mode="floor")
        cut = torch.div(a, b, rounding_mode="trunc")
        rest = a % b
        same = torch.fmod(a, b)
        left = a << (b.abs() * 9)
        right = a >> (b.abs() * 9)
        known = torch.div(a.clamp(0, 0) - 7, 2, rounding_mode="trunc")
        big = a * 4611686018427387904 + b
        narrow = a.to(torch.int32) * 3, a.to(torch.int8) + 100
        return down, cut, rest, same, left, right, known, big, narrow


SPEC = Spec(
    name="integers",
    build=lambda: Model().eval(),
    entry_points={
        "forward": EntryPoint(
            args=(torch.tensor([7, -7, 9, -9, 100, 0]), torch.tensor([2, 2, -4, -4, 7, 3])),
            value_ranges={"b": (-8, 8)},
        )
    },
)
