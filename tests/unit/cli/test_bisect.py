"""`aotpipe bisect`: what it prints, writes and exits with."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from aotpipe.cli import cli
from aotpipe.cli.guard import guarded
from aotpipe.tools.bisect.fault import Fault
from tests.unit.tools.bisect.test_fault import FAULT


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
