"""Targets and bundles, looked at from the command line."""

from __future__ import annotations

import json

from tests.unit.cli.commands import run


def test_targets():
    text = run("targets")
    assert text.startswith("target")
    assert "iree-vmvx" in text
    rows = {row["target"]: row for row in json.loads(run("targets", "--json"))}
    assert rows["iree-cpu-host"]["runs_here"] is True
