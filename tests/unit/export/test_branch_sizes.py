"""A size that both branches take from outside is the same size after them."""

from __future__ import annotations

from pathlib import Path

import torch

import aotpipe
from aotpipe.core.dims import Dim
from tests.unit.export.models import exported


def series(x: torch.Tensor) -> torch.Tensor:
    """Steps over a part of the elements, which are done once they are small."""
    small = x < 10.0
    found = torch.zeros_like(x)
    if small.any():
        part = x[small]
        term, total = part.clone(), torch.zeros_like(part)
        for n in (1, 2, 3):
            total = total + term / n
            if term.abs().max() < 1e-2:
                break
            term = term * part * 0.1
        found[small] = total
    return found


def chosen(x: torch.Tensor) -> torch.Tensor:
    """Both branches have as many elements as a mask; neither is one of outside."""
    return (x[x > 1] if x.sum() > 0 else x[x < 1]).sum() + x


def test_the_size_after_a_branch_is_that_before_it() -> None:
    (entry,) = exported(series, torch.rand(6) * 13, shapes={"x": {0: Dim("n", min=1, max=8)}}).entries
    graphs = [each for each in entry.program.graph_module.modules() if isinstance(each, torch.fx.GraphModule)]
    sizes = {
        str(size)
        for graph in graphs
        for node in graph.graph.nodes
        if isinstance(value := node.meta.get("val"), torch.Tensor)
        for size in value.shape
    }
    assert len({size for size in sizes if size.startswith("u")}) == 1


def test_a_program_of_fixed_sizes_bounds_it(tmp_path: Path) -> None:
    built = aotpipe.build(
        series, args=(torch.rand(6) * 13,), targets=["xla-cpu-host"], out=tmp_path / "b", latency=False
    )
    assert {row.status for row in built.report.targets} == {"executed"}


def test_the_size_of_a_branch_s_own_is_named_anew() -> None:
    (entry,) = exported(chosen, torch.tensor([3.0, 0.5, 2.0, -1.0])).entries
    for x in (torch.tensor([3.0, 0.5, 2.0, -1.0]), -torch.ones(4), torch.tensor([0.5, 0.1, 0.2, 3.0])):
        torch.testing.assert_close(entry.program.module()(x), chosen(x))
