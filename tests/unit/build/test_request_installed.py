"""A host that cannot build is told what to install, by every command that needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

import aotpipe
from aotpipe.build.request import Request
from aotpipe.cli import cli, guarded
from aotpipe.errors import TargetError
from aotpipe.runtime import installed


def without(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str) -> object:
        if name == module:
            return None
        if module == "iree" and name.startswith("iree."):
            raise ModuleNotFoundError(name)
        return object()

    monkeypatch.setattr(installed, "find_spec", find_spec)


@pytest.mark.parametrize("missing", ["torch", "iree.compiler", "iree", "jinja2"])
def test_the_line_to_copy(missing: str, monkeypatch: pytest.MonkeyPatch):
    Request(model="m.py").require_installed()
    without(missing, monkeypatch)
    with pytest.raises(TargetError, match="is not installed") as caught:
        aotpipe.build(lambda x: x, args=(1,))
    assert caught.value.hint == "pip install 'aotpipe[build]'"


@pytest.mark.parametrize("command", ["build m.py", "export m.py", "compile m.py"])
def test_every_command_that_builds(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys):
    (tmp_path / "m.py").write_text("")
    monkeypatch.chdir(tmp_path)
    without("torch", monkeypatch)
    assert guarded(cli, command.split()) == TargetError.exit_code
    assert "pip install 'aotpipe[build]'" in capsys.readouterr().err
