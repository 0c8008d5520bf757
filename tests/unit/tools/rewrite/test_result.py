"""What is given: a diff, a file that is written as a whole, JSON."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path

import pytest
import torch

import aotpipe
from aotpipe.canonicalize.eager_hops import uncompiled
from aotpipe.tools.rewrite.result import Code

MODEL = """import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.arange(300.0)

    def forward(self, x):
        if x.sum() > 0:
            return x + self.table[:3]
        return x


MODEL = Net().eval()
EXAMPLE_INPUTS = (torch.ones(3),)
"""


def made(folder: Path):
    path = folder / "net.py"
    path.write_text(MODEL)
    return aotpipe.written(f"{path}:MODEL", file_name="out.py")


def test_the_diff_the_file_and_json(tmp_path: Path):
    found = made(tmp_path)
    diff = found.diff()
    assert diff.startswith("--- ")
    assert "+++ out.py" in diff
    assert "-        if x.sum() > 0:" in diff
    assert json.loads(json.dumps(found.to_json()))["class"] == "Net"
    found.save(tmp_path / "deep" / "out.py")
    assert not list(tmp_path.rglob("*.new"))
    spec = importlib.util.spec_from_file_location("made_out", tmp_path / "deep" / "out.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with torch.no_grad(), uncompiled():
        assert module.Net()(torch.ones(3)).tolist() == [1, 2, 3]


def test_code_is_frozen():
    code = Code(text="", class_name="Net", methods={"forward": "forward"}, state=(), tensors={})
    with pytest.raises(dataclasses.FrozenInstanceError):
        code.text = "x"
