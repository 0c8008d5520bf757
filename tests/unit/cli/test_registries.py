"""`aotpipe push`, `pull` and `package`, with a real registry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aotpipe.cli import cli, guarded
from aotpipe.errors import BundleError, RegistryError
from tests.registry import registry
from tests.unit.cli.commands import run
from tests.unit.runtime.bundle import samples


def test_push_and_pull(tmp_path: Path) -> None:
    pytest.importorskip("oras")
    bundle = str(samples.packed(tmp_path / "b").path)
    with registry(tmp_path) as host:
        reference = f"{host}/models/small:1.0"
        pushed = json.loads(run("push", bundle, reference, "--plain-http", "--json"))
        out = str(tmp_path / "out")
        pulled = json.loads(
            run("pull", f"{host}/models/small@{pushed['digest']}", "-o", out, "--plain-http", "--json")
        )
        assert pulled == {"path": out, "digest": pushed["digest"]}
        assert json.loads(run("selftest", out, "--json"))["passed"]
        assert guarded(cli, ["pull", f"{host}/none:1", "-o", out, "--plain-http"]) == RegistryError.exit_code


def test_package(tmp_path: Path) -> None:
    bundle, out = str(samples.packed(tmp_path / "b").path), str(tmp_path / "out")
    options = ["--image", "registry.example.com/aotpipe:1", "--storage-uri", "pvc://models/b", "--json"]
    assert json.loads(run("package", bundle, "--for", "kserve", "-o", out, *options)) == {"path": out}
    assert guarded(cli, ["package", bundle, "--for", "kserve", "-o", out]) == BundleError.exit_code
