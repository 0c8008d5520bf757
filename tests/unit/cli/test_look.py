"""Targets and bundles, looked at from the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aotpipe.cli import cli
from aotpipe.cli.guard import guarded
from tests.unit.bundle import samples
from tests.unit.cli.commands import run


def test_targets():
    text = run("targets")
    assert text.startswith("target")
    assert "iree-vmvx" in text
    rows = {row["target"]: row for row in json.loads(run("targets", "--json"))}
    assert rows["iree-cpu-host"]["runs_here"] is True


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return samples.packed(tmp_path / "out").path


def test_inspect(bundle: Path):
    found = json.loads(run("inspect", str(bundle), "--json", "--verify"))
    assert found["name"] == "accumulate"
    programs = {program["target"]: program for program in found["programs"]}
    assert programs["iree-vmvx"]["runs_here"]
    assert not programs["iree-cpu-x86_64"]["runs_here"]
    text = run("inspect", str(bundle))
    assert found["digest"] in text
    assert "it crashed" in text
    assert "warning[unused-input]: model.py:7" in text


def test_selftest(bundle: Path):
    found = json.loads(run("selftest", str(bundle), "--json"))
    assert found["passed"]
    outcomes = {row["target"]: row["outcome"] for row in found["targets"]}
    assert outcomes == {"iree-vmvx": "passed", "iree-cpu-x86_64": "skipped"}
    assert "iree-vmvx" in run("selftest", str(bundle), "-t", "iree-vmvx")


def test_a_selftest_that_fails_is_a_parity_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    first, *rest = samples.goldens()
    wrong = replace(first, outputs={**first.outputs, "y": first.outputs["y"] + 1})
    path = samples.packed(tmp_path / "out", goldens=(wrong, *rest)).path
    assert guarded(cli, ["selftest", str(path)]) == 40
    assert "failed" in capsys.readouterr().out
