"""What is written: a frozen value that gives its files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from aotpipe.passes.codegen.code import Code


def test_code_is_frozen():
    code = Code(text="", class_name="Net", methods={"forward": "forward"}, state=(), tensors={})
    with pytest.raises(dataclasses.FrozenInstanceError):
        code.text = "x"


def test_tensors_lie_in_a_file_of_their_own(tmp_path: Path):
    code = Code(text="x = 1\n", class_name="Net", methods={"forward": "forward"}, state=(), tensors={})
    code.write(tmp_path / "net.py", tmp_path / "net.pt")
    assert (tmp_path / "net.py").read_text() == "x = 1\n"
    assert not (tmp_path / "net.pt").exists()
    dataclasses.replace(code, tensors={"table": torch.ones(3)}).write(
        tmp_path / "net.py", tmp_path / "net.pt"
    )
    assert torch.load(tmp_path / "net.pt")["table"].tolist() == [1, 1, 1]
