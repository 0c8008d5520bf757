"""`aotpipe build --allow-islands` and `aotpipe islands`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.commands import run

NET = """
import numpy as np
import torch
import aotpipe

@aotpipe.eager_island(arrays="numpy", reason="numpy's sort")
def order(x):
    return np.sort(x)

class Net(torch.nn.Module):
    def forward(self, x):
        return order(x * 2) + 1

MODEL = Net().eval()
EXAMPLE_INPUTS = (torch.ones(3),)
"""


def test_a_model_file_with_an_island(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sorting.py").write_text(NET)
    settings = ["-t", "iree-vmvx", "--allow-islands", "-q", "--no-cache", "--no-latency", "--out", "b"]
    run("build", "sorting.py", *settings)
    listed = run("islands", "b", "--calls", "2")
    assert "function  sorting:order" in listed
    assert "sorting.py:12" in listed
    assert [step["kind"] for step in json.loads(run("islands", "b", "--calls", "2", "--json"))] == [
        "program",
        "function",
        "program",
    ]
    assert "sorting:order  sorting.py:12  numpy's sort" in run("inspect", "b")
