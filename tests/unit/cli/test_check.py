"""`aotpipe check`: the text, the JSON, the SARIF file and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from aotpipe.cli import cli

NET = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        print("hello")
        y = x
        if x.sum() > 0:
            y = x[None]
        return y
MODEL = Net().eval()
EXAMPLE_INPUTS = (torch.ones(3),)
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(NET)
    return str(path)


def test_the_text_and_the_exit_code(net: str):
    result = CliRunner().invoke(cli, ["check", net], catch_exceptions=False, standalone_mode=False)
    assert result.return_value == 22
    assert "error[paths-differ]: `y` has the shapes" in result.stdout
    assert "         if x.sum() > 0:\n    |            ^^^^^^^^^^^\n" in result.stdout
    assert "hello\n" not in result.stdout


def test_json_and_sarif(net: str, tmp_path: Path):
    sarif = tmp_path / "out" / "check.sarif"
    argv = ["check", net, "--json", "--sarif", str(sarif)]
    result = CliRunner().invoke(cli, argv, catch_exceptions=False, standalone_mode=False)
    data = json.loads(result.stdout)
    assert [each["code"] for each in data["diagnostics"]] == ["paths-differ", "output-dropped"]
    assert [each["place"]["line"] for each in data["diagnostics"]] == [7, 5]
    results = json.loads(sarif.read_text())["runs"][0]["results"]
    assert [each["ruleId"] for each in results] == ["paths-differ", "output-dropped"]


def test_nothing_in_the_way_is_0(net: str):
    path = Path(net)
    path.write_text(NET.replace("x[None]", "x + 1"))
    result = CliRunner().invoke(cli, ["check", net, "-q"], catch_exceptions=False, standalone_mode=False)
    assert result.return_value == 0
    assert "becomes one program" in result.stdout
