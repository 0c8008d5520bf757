"""`aotpipe diff` and `aotpipe replay`, from the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from aotpipe.build import report_folder
from aotpipe.build.difference import Kind
from aotpipe.cli import ci, cli, guarded
from aotpipe.errors import BundleError, BundleNotFound, Regressed
from tests.unit.build.reports import REPORT
from tests.unit.cli.commands import run
from tests.unit.runtime.bundle import samples

OLD = replace(REPORT, targets=REPORT.targets[:2])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    report_folder.write(OLD, tmp_path / "old.report")
    larger = replace(OLD.targets[0], size_bytes=10**6)
    report_folder.write(replace(OLD, targets=(larger, OLD.targets[1])), tmp_path / "new.report")
    return tmp_path


def test_the_kinds_are_those_of_the_difference():
    assert get_args(Kind) == ci.KINDS


def test_what_is_worse_fails(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert guarded(cli, ["diff", "old", "new"]) == Regressed.exit_code
    out, err = capsys.readouterr()
    assert out.splitlines()[1].split() == ["size", "iree-cpu-host", "17.7", "kB", "1.0", "MB", "worse"]
    assert "error[diff]: size of iree-cpu-host: 17.7 kB -> 1.0 MB" in err
    assert guarded(cli, ["diff", "old", "new", "--json"]) == Regressed.exit_code
    assert json.loads(capsys.readouterr().out)["regressed"] is True


def test_a_change_may_be_meant(folder: Path):
    assert "1.0 MB" in run("diff", "old", "new", "--allow", "size")
    assert "1.0 MB" in run("diff", "old", "new", "--size", "100")
    assert run("diff", "new", "new.report") == "nothing differs\n"


def test_a_report_that_is_not_there(folder: Path):
    assert guarded(cli, ["diff", "old", "none"]) == BundleNotFound.exit_code


def test_a_bundle_without_modules_cannot_be_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = samples.packed(tmp_path / "out").path
    assert guarded(cli, ["replay", str(path), "-q"]) == BundleError.exit_code
    assert "--keep-modules" in capsys.readouterr().err
