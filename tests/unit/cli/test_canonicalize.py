"""`aotpipe canonicalize`: the file, the diff, the JSON, and nothing where a proof fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from aotpipe.cli import cli
from aotpipe.errors import RewriteFailed

NET = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x
MODEL = Net().eval()
EXAMPLE_INPUTS = (torch.ones(3),)
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(NET)
    return str(path)


def run(*argv: str):
    return CliRunner().invoke(cli, ["canonicalize", *argv], catch_exceptions=False, standalone_mode=False)


def test_the_file_and_what_is_said(net: str, tmp_path: Path):
    out = tmp_path / "out.py"
    result = run(net, "-o", str(out))
    assert "torch.cond(" in out.read_text()
    assert result.stdout == ""
    assert "proved:" in result.stderr
    assert "covered: line" in result.stderr


def test_the_code_or_the_diff_on_stdout(net: str):
    assert "class Net(" in run(net, "-q").stdout
    diff = run(net, "--diff", "-q").stdout
    assert diff.startswith("--- ")
    assert "+++ model.py" in diff


def test_what_a_model_prints_is_no_part_of_the_answer(net: str):
    path = Path(net)
    path.write_text(NET.replace("        if x", "        print('hello')\n        if x"))
    assert "hello\n" not in run(net, "-q", "--diff").stdout.replace("print('hello')", "")


def test_json(net: str):
    data = json.loads(run(net, "--json").stdout)
    assert data["class"] == "Net"
    assert data["proof"]["calls"] > 2
    assert data["path"] is None


def test_nothing_is_written_where_the_proof_fails(net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from aotpipe.tools.rewrite import writer

    def fail(*_: object, **__: object):
        raise RewriteFailed("the rewritten model differs in the call 'seed 0' of forward")

    monkeypatch.setattr(writer, "prove", fail)
    out = tmp_path / "out.py"
    with pytest.raises(RewriteFailed, match="seed 0"):
        run(net, "-o", str(out))
    assert not out.exists()
