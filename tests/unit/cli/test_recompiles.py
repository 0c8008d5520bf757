"""`aotpipe recompiles`: the table, the JSON and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aotpipe.cli import cli

NET = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.count = 0
    def forward(self, x):
        print("hello")
        self.count += 1
        return x * self.count
MODEL = Net().eval()
EXAMPLE_INPUTS = (torch.ones(3),)
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(NET)
    return str(path)


def run(*argv: str) -> Result:
    return CliRunner().invoke(cli, ["recompiles", "-q", *argv], catch_exceptions=False, standalone_mode=False)


def test_the_table_and_a_limit(net: str) -> None:
    result = run(net, "--of", "torch.compile", "--at-most", "1")
    assert result.return_value == 24
    assert "net.py:9  self.count: 0 -> 1" in result.stdout
    assert "more than 1" in result.stderr
    assert "hello" not in result.stdout


def test_json_of_a_target_within_its_limit(net: str, tmp_path: Path) -> None:
    calls = tmp_path / "calls.json"
    calls.write_text('[{"inputs": {"x": {"shape": [3]}}}, {"inputs": {}}]')
    result = run(net, "--of", "iree-vmvx", "--at-most", "1", "--inputs", str(calls), "--json", "--no-cache")
    assert result.return_value == 0
    data = json.loads(result.stdout)
    assert data["calls"] == ["call 1", "call 2"]
    assert [(way["name"], way["count"], way["compared"]) for way in data["ways"]] == [("iree-vmvx", 1, 2)]
