"""`aotpipe check`, `canonicalize`, `recompiles`, `bisect`: the text, the JSON, the files, the exit code."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aotpipe.cli import cli, guarded
from aotpipe.errors import RewriteFailed
from aotpipe.tools.bisect.fault import Fault
from tests.unit.tools.bisect.test_fault import FAULT

DIFFERING = """
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
def differing(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(DIFFERING)
    return str(path)


def test_the_text_and_the_exit_code(differing: str):
    result = CliRunner().invoke(cli, ["check", differing], catch_exceptions=False, standalone_mode=False)
    assert result.return_value == 22
    assert "error[paths-differ]: `y` has the shapes" in result.stdout
    assert "         if x.sum() > 0:\n    |            ^^^^^^^^^^^\n" in result.stdout
    assert "hello\n" not in result.stdout


def test_json_and_sarif(differing: str, tmp_path: Path):
    sarif = tmp_path / "out" / "check.sarif"
    argv = ["check", differing, "--json", "--sarif", str(sarif)]
    result = CliRunner().invoke(cli, argv, catch_exceptions=False, standalone_mode=False)
    data = json.loads(result.stdout)
    assert [each["code"] for each in data["diagnostics"]] == ["paths-differ", "output-dropped"]
    assert [each["place"]["line"] for each in data["diagnostics"]] == [7, 5]
    results = json.loads(sarif.read_text())["runs"][0]["results"]
    assert [each["ruleId"] for each in results] == ["paths-differ", "output-dropped"]


def test_nothing_in_the_way_is_0(differing: str):
    path = Path(differing)
    path.write_text(DIFFERING.replace("x[None]", "x + 1"))
    result = CliRunner().invoke(
        cli, ["check", differing, "-q"], catch_exceptions=False, standalone_mode=False
    )
    assert result.return_value == 0
    assert "becomes one program" in result.stdout


BRANCHING = """
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
def branching(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(BRANCHING)
    return str(path)


def canonicalize(*argv: str):
    return CliRunner().invoke(cli, ["canonicalize", *argv], catch_exceptions=False, standalone_mode=False)


def test_the_file_and_what_is_said(branching: str, tmp_path: Path):
    out = tmp_path / "out.py"
    result = canonicalize(branching, "-o", str(out))
    assert "torch.cond(" in out.read_text()
    assert result.stdout == ""
    assert "proved:" in result.stderr
    assert "covered: line" in result.stderr


def test_the_code_or_the_diff_on_stdout(branching: str):
    assert "class Net(" in canonicalize(branching, "-q").stdout
    diff = canonicalize(branching, "--diff", "-q").stdout
    assert diff.startswith("--- ")
    assert "+++ model.py" in diff


def test_what_a_model_prints_is_no_part_of_the_answer(branching: str):
    path = Path(branching)
    path.write_text(BRANCHING.replace("        if x", "        print('hello')\n        if x"))
    assert "hello\n" not in canonicalize(branching, "-q", "--diff").stdout.replace("print('hello')", "")


def test_json(branching: str):
    data = json.loads(canonicalize(branching, "--json").stdout)
    assert data["class"] == "Net"
    assert data["proof"]["calls"] > 2
    assert data["path"] is None


def test_nothing_is_written_where_the_proof_fails(
    branching: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from aotpipe.tools import rewrite

    def fail(*_: object, **__: object):
        raise RewriteFailed("the rewritten model differs in the call 'seed 0' of forward")

    monkeypatch.setattr(rewrite, "prove", fail)
    out = tmp_path / "out.py"
    with pytest.raises(RewriteFailed, match="seed 0"):
        canonicalize(branching, "-o", str(out))
    assert not out.exists()


COUNTING = """
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
def counting(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(COUNTING)
    return str(path)


def recompiles(*argv: str) -> Result:
    return CliRunner().invoke(cli, ["recompiles", "-q", *argv], catch_exceptions=False, standalone_mode=False)


def test_the_table_and_a_limit(counting: str) -> None:
    result = recompiles(counting, "--of", "torch.compile", "--at-most", "1")
    assert result.return_value == 24
    assert "net.py:9  self.count: 0 -> 1" in result.stdout
    assert "more than 1" in result.stderr
    assert "hello" not in result.stdout


def test_json_of_a_target_within_its_limit(counting: str, tmp_path: Path) -> None:
    calls = tmp_path / "calls.json"
    calls.write_text('[{"inputs": {"x": {"shape": [3]}}}, {"inputs": {}}]')
    result = recompiles(
        counting, "--of", "iree-vmvx", "--at-most", "1", "--inputs", str(calls), "--json", "--no-cache"
    )
    assert result.return_value == 0
    data = json.loads(result.stdout)
    assert data["calls"] == ["call 1", "call 2"]
    assert [(way["name"], way["count"], way["compared"]) for way in data["ways"]] == [("iree-vmvx", 1, 2)]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Fault | None]:
    """What the search comes to, which a test may set."""
    answer: list[Fault | None] = [FAULT]
    monkeypatch.setattr(import_module("aotpipe.tools.bisect"), "bisect", lambda *_, **__: answer[0])
    return answer


@pytest.mark.usefixtures("found")
def test_the_op_its_line_and_the_files(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert guarded(cli, ["bisect", "m.py", "-o", str(tmp_path / "out")]) == 40
    out = capsys.readouterr().out
    assert "aten.exp.default (`exp`) at model.py:12" in out
    assert "right in a program of its own" in out
    assert "giving as a result too: aten.mul.Tensor (`mul`)" in out
    assert (tmp_path / "out" / "module.mlir").exists()


def test_a_right_program_and_json(found, capsys: pytest.CaptureFixture[str]):
    assert guarded(cli, ["bisect", "m.py", "--json"]) == 40
    assert json.loads(capsys.readouterr().out)["fault"]["place"]["op"] == "aten.exp.default"
    found[0] = None
    assert guarded(cli, ["bisect", "m.py"]) == 0
    assert "at parity" in capsys.readouterr().out


def test_the_program_is_built_with_the_options_of_the_build(monkeypatch: pytest.MonkeyPatch):
    asked: dict[str, object] = {}
    monkeypatch.setattr(
        import_module("aotpipe.tools.bisect"), "bisect", lambda *_, **given: asked.update(given)
    )
    options = ["--dtype=bf16", "--optional=mask", "--tensorize=k", "--mesh=2", "--shard=w=(x, None)"]
    assert guarded(cli, ["bisect", "m.py", *options]) == 0
    wanted = {
        "dtype": "bf16",
        "optional": ("mask",),
        "tensorize": ("k",),
        "mesh": "2",
        "shard": ("w=(x, None)",),
    }
    assert wanted.items() <= asked.items()
