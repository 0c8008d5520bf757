"""What is given: a diff, a file that is written as a whole, JSON."""

from __future__ import annotations

import dataclasses
import errno
import importlib.util
import json
from pathlib import Path

import pytest
import torch

import aotpipe
from aotpipe.canonicalize.example_call import uncompiled
from aotpipe.errors import StoreError

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
    assert [each.name for each in (tmp_path / "deep").iterdir()] == ["out.py"]
    spec = importlib.util.spec_from_file_location("made_out", tmp_path / "deep" / "out.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with torch.no_grad(), uncompiled():
        assert module.Net()(torch.ones(3)).tolist() == [1, 2, 3]


def test_what_cannot_be_saved_leaves_both_files_as_they_were(tmp_path: Path, monkeypatch):
    found = dataclasses.replace(made(tmp_path), tensors={"table": torch.zeros(300)})
    target = tmp_path / "old" / "out.py"
    found.save(target)
    before = {path: path.read_bytes() for path in target.parent.iterdir()}
    assert len(before) == 2

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    other = dataclasses.replace(found, tensors={"table": torch.ones(300)}, text="")
    for owner, name in ((torch, "save"), (Path, "write_text")):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, full)
            with pytest.raises(StoreError):
                other.save(target)
        assert {path: path.read_bytes() for path in target.parent.iterdir()} == before
