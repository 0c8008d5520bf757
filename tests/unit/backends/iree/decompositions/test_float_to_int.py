"""Casts to integers go towards zero on every target."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import aotpipe
from aotpipe.backends import legalization
from aotpipe.canonicalize import canonicalize
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from aotpipe.passes import legalize

X = torch.tensor([1.5, -2.5, 2.999, -0.5, 7.0, 2.5e9])


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.long(), x.clamp(-9, 9).int(), x.floor().long(), x > 0


@pytest.mark.parametrize("target", ["iree-vmvx", "iree-cpu-host"])
def test_as_in_eager(target: str, tmp_path: Path) -> None:
    bundle = aotpipe.build(
        Model().eval(), args=(X,), targets=[target], out=tmp_path / "bundle", latency=False, cache=False
    )
    assert [row.status for row in bundle.report.targets] == ["executed"]


def test_what_is_whole_is_cast_as_it_is() -> None:
    [entry] = legalize(export(canonicalize(as_spec(Model().eval(), args=(X,)))), legalization()).entries
    assert len(entry.graph.graph.find_nodes(op="call_function", target=torch.ops.aten.trunc.default)) == 2
