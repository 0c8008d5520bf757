"""Whatever ends a build, and wherever, leaves a report, and all files of it validate."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from aotpipe.build import report_folder
from aotpipe.build.build import Settings, run
from aotpipe.build.draft import Draft, machine, origin
from aotpipe.build.events import Recorder, Running, Stage
from aotpipe.build.report import KILLED, Report
from aotpipe.build.request import Request
from aotpipe.cli import cli, guarded
from aotpipe.errors import BUG, CompileFailed, ExportFailed, Interrupted, ModelImportFailed, SourceLine
from tests.unit.build import report_schema
from tests.unit.build.formats.test_sarif import SCHEMA as SARIF

NET = """
import os
import torch
{said}
NET = torch.nn.Linear(4, 3).eval()
EXAMPLE_INPUTS = (torch.ones(2, 4),)
"""
STAGES: tuple[Stage, ...] = (
    *("load", "canonicalize", "export", "legalize", "lower", "reference", "weights"),
    *("compile", "validate", "pack"),
)


def checked(folder: Path) -> Report:
    """The report of a folder, all files of which are what they should be."""
    data = json.loads((folder / "report.json").read_text())
    jsonschema.Draft202012Validator(report_schema.schema()).validate(data)
    jsonschema.Draft4Validator(SARIF).validate(json.loads((folder / "report.sarif").read_text()))
    suite = ET.fromstring((folder / "junit.xml").read_bytes())
    assert suite.get("tests") == str(len(suite))
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")
    report = report_folder.read(folder)
    assert report is not None
    if not report.ok:
        assert int(suite.get("errors", 0)) + int(suite.get("failures", 0)) > 0
    return report


def test_the_published_schema_is_that_of_the_types():
    assert report_schema.PATH.read_text() == report_schema.text(), (
        "run python -m tests.unit.build.report_schema"
    )
    jsonschema.Draft202012Validator.check_schema(report_schema.schema())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(NET.format(said=""))
    return tmp_path


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> dict[str, BaseException]:
    """What a stage raises, by its name."""
    found: dict[str, BaseException] = {}
    real = Recorder.stage

    @contextmanager
    def stage(self: Recorder, stage: Stage, target: str = "") -> Iterator[Running]:
        with real(self, stage, target) as running:
            if stage in found:
                raise found[stage]
            yield running

    monkeypatch.setattr(Recorder, "stage", stage)
    return found


def _build(out: str) -> Any:
    settings = Settings(out=out, latency=False)
    return run(Request.of("m.py", ["iree-vmvx"]), settings)


def test_a_failure_at_each_stage_leaves_a_report(project: Path, failing: dict[str, BaseException]):
    for stage in STAGES:
        failing.clear()
        kind = CompileFailed if stage == "compile" else ExportFailed
        failing[stage] = kind("no", reason="because", where=SourceLine("m.py", 4))
        outcome = _build(f"typed-{stage}")
        report = checked(project / f"typed-{stage}.report")
        assert outcome.path is None, stage
        assert report.exit_code == kind.exit_code, stage
        assert [problem.where for problem in report.problems] == [SourceLine("m.py", 4)], stage
        if stage not in {"compile", "validate"}:
            failing[stage] = ZeroDivisionError("oops")
            with pytest.raises(ZeroDivisionError):
                _build(f"bug-{stage}")
            failure = checked(project / f"bug-{stage}.report").failure
            assert failure is not None
            assert (failure.error, failure.stage, failure.exit_code) == ("Bug", stage, BUG)


def test_ctrl_c_leaves_a_report(project: Path, failing: dict[str, BaseException]):
    failing["export"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        _build("out")
    failure = checked(project / "out.report").failure
    assert failure is not None
    assert (failure.error, failure.stage, failure.exit_code) == (
        "Interrupted",
        "export",
        Interrupted.exit_code,
    )


def test_a_build_that_passes_leaves_the_same_form(project: Path):
    assert _build("out").error is None
    report = checked(project / "out.report")
    assert report.ok
    assert report.origin.source == "m.py"
    assert report.entry_points
    assert report.ops == {"torch.aten.linear": 1} or sum(report.ops.values()) > 0


@pytest.mark.parametrize(
    ("number", "code", "error"),
    [(signal.SIGKILL, -signal.SIGKILL, "Killed"), (signal.SIGTERM, Interrupted.exit_code, "Interrupted")],
)
def test_a_build_that_is_killed_says_in_which_stage(project: Path, number: int, code: int, error: str):
    (project / "m.py").write_text(NET.format(said=f"os.kill(os.getpid(), {int(number)})"))
    argv = [sys.executable, "-m", "aotpipe", "build", "m.py", "-o", "out"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    failure = checked(project / "out.report").failure
    assert failure is not None
    assert (failure.error, failure.stage) == (error, "load")
    assert failure.exit_code == (KILLED if error == "Killed" else Interrupted.exit_code)


@pytest.mark.parametrize(
    "argv",
    [
        "build none.py",
        "build m.py -t iree-cpu-hots",
        "build m.py --budget iree-vmvx:size=1MB",
        "build m.py:NONE",
        "build m.py -t iree-vmvx --buckets batch=1",
    ],
)
def test_a_request_that_is_refused_leaves_a_report(
    project: Path, argv: str, capsys: pytest.CaptureFixture[str]
):
    code = guarded(cli, [*argv.split(), "-o", "out", "--json", "-q"])
    report = checked(project / "out.report")
    assert code == report.exit_code > 2
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((project / "out.report" / "report.json").read_text())


def test_the_users_line_is_annotated(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project / "summary.md"))
    (project / "m.py").write_text(NET.format(said="1 / 0"))
    assert guarded(cli, ["build", "m.py", "-o", "out", "-q"]) == ModelImportFailed.exit_code
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("::")]
    assert len(lines) == 1
    assert "file=m.py,line=4::" in lines[0]
    assert "ModelImportFailed" in (project / "summary.md").read_text()


def test_a_draft_goes_where_the_name_is_another(project: Path):
    draft = Draft.of("m.py:NET", None, None)
    assert draft.name == "m"
    draft.write("before its first stage", Recorder())
    assert (project / "artifacts" / "m.report").is_dir()
    draft.rename("net")
    assert list((project / "artifacts").iterdir()) == []
    assert Draft.of("a.b:NET", None, None).name == "b"
    assert Draft.of(object(), None, None).name == "model"


def test_where_nothing_can_be_written_the_error_is_the_builds_own(project: Path):
    (project / "file").write_text("")
    outcome = run(Request.of("none.py", ["iree-vmvx"]), Settings(out="file/out"))
    assert outcome.error is not None
    assert not outcome.folder.exists()


def test_an_origin_names_the_machine_and_the_commit(project: Path):
    assert "cores" in machine()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for more in (["init", "-q"], ["add", "m.py"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *more], check=True)
    found = origin("m.py")
    assert len(found.commit) == 40
    (project / "m.py").write_text("")
    assert origin("m.py").commit == found.commit + "+changes"
