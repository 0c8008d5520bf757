"""`aotpipe push` and `pull`, with a real registry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aotpipe.cli import cli, guarded
from aotpipe.errors import RegistryError
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
