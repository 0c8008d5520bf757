"""Searches, histograms and orders."""

from __future__ import annotations

import torch

from aotpipe import EntryPoint, Spec


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> object:
        edges = torch.tensor([-0.5, 0.0, 0.0, 0.5])
        left = torch.searchsorted(edges, x)
        right = torch.searchsorted(edges, x, right=True)
        bars = torch.histc(x, 5, -1.0, 1.0)
        whole = x.round()
        often, place = whole.mode()
        third, at = x.kthvalue(3)
        middle = x.median()
        numbers = x.nanmedian()
        roots = x.sqrt().median()
        where = torch.nonzero_static(x > 0.25, size=5)
        times = torch.repeat_interleave(x, torch.tensor([0, 2, 1, 0, 3, 1, 1, 0]), output_size=8)
        return (
            left,
            right,
            bars,
            often,
            place,
            third,
            at,
            middle,
            numbers,
            roots,
            where,
            times,
            x.argsort(stable=True),
        )


SPEC = Spec(
    name="counting",
    build=lambda: Model().eval(),
    entry_points={"forward": EntryPoint(args=(torch.linspace(-1, 1, 8),))},
)
