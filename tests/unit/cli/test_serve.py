"""The command line of `aotpipe serve`; servers are tried in tests/unit/runtime/serve."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from aotpipe.cli.serve import serve
from aotpipe.errors import ServeError


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in [name for name in sys.modules if name.startswith("aotpipe.runtime.serve.serving")]:
        monkeypatch.delitem(sys.modules, name)
    result = CliRunner().invoke(serve, [str(tmp_path)])
    assert isinstance(result.exception, ServeError)
    assert result.exception.hint == "pip install 'aotpipe[serve]'"


def test_an_empty_token_is_none(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" \n")
    result = CliRunner().invoke(serve, [str(tmp_path), "--token-file", str(tmp_path / "token")])
    assert isinstance(result.exception, ServeError)
    assert "holds no token" in result.exception.message
