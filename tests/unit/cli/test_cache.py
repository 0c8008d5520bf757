"""The cache from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aotpipe.runtime.store import Store, digest
from tests.unit.cli.commands import run


def test_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AOTPIPE_CACHE", str(tmp_path))
    Store.default().put("compiled", digest(1), {"x": bytes(5000)})
    assert json.loads(run("cache", "ls", "--json"))["kinds"]["compiled"]["entries"] == 1
    assert "compiled" in run("cache", "ls")
    assert int(run("cache", "size")) > 5000
    assert "freed 5." in run("cache", "clear")
    assert json.loads(run("cache", "size", "--json")) == {"size_bytes": 0}
