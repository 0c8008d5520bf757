"""Quotients that are rounded to integers or compared are eager's own, on both compilers of StableHLO."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import aotpipe
from aotpipe.backends.iree.lower import stablehlo
from tests.programs import on_xla, through

WHOLE = torch.arange(1, 400).float()


class Quotients(torch.nn.Module):
    def forward(self, x: torch.Tensor, by: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = x.reshape(-1, 1) / by
        return (
            *((x / 49).int(), torch.div(x, 49, rounding_mode="trunc"), (x / by[0]).floor()),
            *(rows.reshape(-1).long(), (x * by[1]) / by[1] == x, torch.div(x, by[2], rounding_mode="trunc")),
            x / by[0],
        )


CALL = (torch.cat([WHOLE * 49, WHOLE * 41, WHOLE / 7]), torch.tensor([49.0, 41.0, 7.1]))


def test_xla_rounds_eagers_quotients() -> None:
    on_xla.check(Quotients(), CALL)


@pytest.mark.slow
def test_iree_does_so_of_stablehlo(tmp_path: Path) -> None:
    built = aotpipe.build(
        Quotients(),
        args=CALL,
        targets=["iree-cpu-host"],
        dialect="stablehlo",
        latency=False,
        out=tmp_path / "b",
    )
    assert [each.status for each in built.report.targets] == ["executed"]


def test_iree_gets_no_barriers() -> None:
    module = stablehlo.lower(through.legal(Quotients(), CALL, dialect="stablehlo")).module
    assert b"stablehlo.divide" in module
    assert b"optimization_barrier" not in module


def test_what_is_not_rounded_stays_a_division() -> None:
    program = through.legal(Quotients(), CALL, dialect="stablehlo")
    names = [str(node.target) for node in program.entries[0].graph.graph.nodes]
    assert sum("true_divide" in name for name in names) == 4
    assert sum(name == "aten.div.Tensor" for name in names) == 1
