"""Results that mathematics leaves open are named where parity fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import aotpipe
from aotpipe.errors import ParityError
from aotpipe.passes import undetermined
from tests.unit.export.models import exported


def axis(x: torch.Tensor) -> torch.Tensor:
    _, vectors = torch.linalg.eigh(x.mT @ x)
    return vectors[:, 0] + x


def spread(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.eigvalsh(x.mT @ x) + torch.linalg.svdvals(x)


def turned(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        u, _, vh = torch.linalg.svd(x)
        return u @ vh
    return x * 2


@pytest.mark.parametrize(("model", "names"), [(axis, ["eigh"]), (spread, []), (turned, ["svd"])])
def test_lines_that_read_vectors_are_named(model: Any, names: list[str]) -> None:
    programs = [entry.program for entry in exported(model, torch.randn(3, 3)).entries]
    said = undetermined.vectors(programs)
    assert len(said) == len(names)
    for text, name in zip(said, names, strict=True):
        assert "test_undetermined.py:" in text
        assert f"reads the vectors of {name}: the sign of each is free" in text


def test_the_error_of_a_build_says_that_signs_are_free_and_how_to_fix_them(tmp_path: Path) -> None:
    options: Any = {"targets": ["iree-cpu-host"], "latency": False}
    args = (torch.tensor([[2.0, -1.0, 0.5], [0.3, 1.0, -4.0], [1.0, 2.0, 0.1]]),)
    with pytest.raises(ParityError, match="the sign of each is free") as caught:
        aotpipe.build(axis, args=args, out=tmp_path / "a", **options)
    line = caught.value.hint.partition("`")[2].partition("`")[0]

    def fixed(x: torch.Tensor) -> torch.Tensor:
        found: dict[str, Any] = {"torch": torch, "v": torch.linalg.eigh(x.mT @ x)[1]}
        exec(line, found)
        return found["v"][:, 0] + x

    built = aotpipe.build(fixed, args=args, out=tmp_path / "b", **options)
    assert {row.status for row in built.report.targets} == {"executed"}
