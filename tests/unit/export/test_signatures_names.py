"""Placeholders by input name, results by output name."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from aotpipe.errors import ExportFailed
from aotpipe.export import signatures, strategies
from tests.unit.export.models import entry_of


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, n: int, *, later: torch.Tensor, first: torch.Tensor) -> dict[str, Any]:
        return {"b": self.linear(x) + first, "a": later * n, "none": None}


def test_inputs_keep_the_order_of_the_call() -> None:
    entry = entry_of(Net().eval(), torch.ones(1, 2), 3, first=torch.ones(1, 2), later=torch.ones(5))
    program = strategies.trace(entry).program
    values = {name: node.meta["val"] for name, node in signatures.input_nodes(entry, program).items()}
    assert list(values) == ["x", "n", "first", "later"]
    assert values["later"].shape == (5,)
    assert values["n"] == 3
    outputs = signatures.output_arguments(entry, program)
    assert list(outputs) == ["b", "a", "none"]
    assert outputs["none"].value is None


def test_another_structure_than_in_eager_mode_is_refused() -> None:
    entry = entry_of(Net().eval(), torch.ones(1, 2), 3, first=torch.ones(1, 2), later=torch.ones(5))
    program = strategies.trace(entry).program
    with pytest.raises(ExportFailed, match=r"gives 3 outputs in torch\.export, 1 in eager"):
        signatures.output_arguments(dataclasses.replace(entry, output_names=("b",)), program)
    with pytest.raises(ExportFailed, match="4 inputs in place of 1"):
        signatures.input_nodes(dataclasses.replace(entry, input_names=("x",)), program)
