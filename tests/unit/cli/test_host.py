"""What this host can do, and what to install for the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aotpipe.runtime import installed
from aotpipe.runtime.store import Store, digest
from tests.unit.cli.commands import run


def test_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AOTPIPE_CACHE", str(tmp_path))
    found = json.loads(run("doctor", "--json"))
    assert found["abilities"]["load bundles"]["ready"]
    assert found["cache"]["path"] == str(tmp_path)
    assert found["devices"]["metal"]["problem"]
    assert found["targets"]["iree-vmvx"]["runs_here"]
    assert found["targets"]["iree-cuda-sm_90"]["compiles_here"]
    shown = run("doctor")
    assert "iree-base-runtime" in shown
    assert "build for XLA" in shown


def test_doctor_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(installed, "is_installed", lambda module: module != "torch")
    found = json.loads(run("doctor", "--json"))
    assert found["abilities"]["build bundles"] == {
        "ready": False,
        "missing": ["torch"],
        "remedy": "pip install 'aotpipe[build]'",
    }


def test_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AOTPIPE_CACHE", str(tmp_path))
    Store.default().put("compiled", digest(1), {"x": bytes(5000)})
    assert json.loads(run("cache", "ls", "--json"))["kinds"]["compiled"]["entries"] == 1
    assert "compiled" in run("cache", "ls")
    assert int(run("cache", "size")) > 5000
    assert "freed 5." in run("cache", "clear")
    assert json.loads(run("cache", "size", "--json")) == {"size_bytes": 0}
