"""`aotpipe export`, `compile` and `validate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aotpipe.cli import cli
from aotpipe.cli.guard import guarded
from aotpipe.cli.steps import signature_text
from aotpipe.core.signature import Constant, Signature, Symbol, TensorSpec
from tests.unit.cli.commands import run

NET = """
import torch
torch.manual_seed(0)
NET = torch.nn.Linear(4, 3).eval()
EXAMPLE_INPUTS = (torch.ones(2, 4),)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(NET)
    (tmp_path / "other.py").write_text(NET.replace("manual_seed(0)", "manual_seed(1)"))
    return tmp_path


def test_export(folder: Path):
    assert run("export", "m.py", "-o", "programs", "-q") == (
        "forward\n  in    input: float32[2, 4]\n  out   output: float32[2, 3]\n"
    )
    assert (folder / "programs" / "forward.pt2").is_file()
    found = json.loads(run("export", "m.py", "--json", "-q"))
    assert found["entry_points"]["forward"]["inputs"] == ["input: float32[2, 4]"]


def test_compile(folder: Path):
    (program,) = json.loads(run("compile", "m.py", "-t", "iree-vmvx", "-o", "p", "--json", "-q"))["programs"]
    assert (folder / "p" / "iree-vmvx" / "program.vmfb").stat().st_size == program["size_bytes"]
    assert b"@forward" in (folder / "p" / "module.mlir").read_bytes()
    assert "iree-vmvx  " in run("compile", "m.py", "-t", "iree-vmvx", "-o", "p", "-q")


def test_validate(folder: Path, capsys: pytest.CaptureFixture[str]):
    run("build", "m.py", "-t", "iree-vmvx", "-o", "out", "--no-latency", "-q")
    assert json.loads(run("validate", "out", "m.py", "--json", "-q"))["ok"]
    assert guarded(cli, ["validate", "out", "other.py", "-q"]) == 40
    out, err = capsys.readouterr()
    assert "iree-vmvx  failed" in out
    assert "error[validate]: iree-vmvx: `output` of forward" in err


def test_a_signature_for_people():
    signature = Signature(
        inputs=(TensorSpec("ids", "int64", ("batch",), (0, 9)), Constant("scale", 2.5)),
        outputs=(TensorSpec("y", "float32", ("batch",)),),
        state=(TensorSpec("count", "int64", ()),),
        symbols=(Symbol("batch", 1, 8),),
    )
    assert signature_text("decode", signature).splitlines() == [
        "decode",
        "  in    ids: int64[batch] in [0, 9]",
        "  in    scale = 2.5 (fixed)",
        "  out   y: float32[batch]",
        "  state count: int64[]",
        "  size  batch=1..8",
    ]
