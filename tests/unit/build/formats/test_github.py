"""What GitHub Actions reads: workflow commands and the summary of the step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aotpipe.build.formats import github
from aotpipe.build.report import Budget, Failure, Origin, Problem, Report
from aotpipe.errors import SourceLine
from tests.unit.build.reports import REPORT


def test_an_annotation_is_at_the_line_below_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    where = SourceLine(str(tmp_path / "sub" / "a,b:c.py"), 7)
    problem = Problem("error", "ParityError", "50% off\nat: 1, 2", where)
    assert github.annotation(problem) == (
        "::error title=aotpipe ParityError,file=sub/a%2Cb%3Ac.py,line=7::50%25 off%0Aat: 1, 2"
    )


def test_notes_are_left_out_and_what_has_no_line_is_at_the_file():
    report = replace(REPORT, origin=Origin(source="model.py"))
    lines = list(github.commands(report))
    assert [line.split(" ")[0] for line in lines] == ["::error", "::warning"]
    assert "file=model.py::" in lines[0]
    assert "file=model.py,line=7::" in lines[1]


def test_the_summary_is_a_table_that_nothing_in_it_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    budget = Budget(target="iree-vmvx", name="size", limit="2 MB", found="3 MB", passed=False)
    github.add_summary(replace(REPORT, budgets=(budget,)))
    text = path.read_text()
    assert "### aotpipe: tiny failed in 12.5 s" in text
    assert "| iree-cpu-host | executed | 12% | ×0.79 | 17.7 kB |" in text
    assert "iree-vmvx: size is 3 MB, 2 MB is allowed" in text
    assert "<1.0>" not in text
    failure = Failure(error="Bug", stage="export", exit_code=70, message="a | b")
    assert "a \\| b" in github.summary(Report(name="net", failure=failure))


def test_a_summary_that_cannot_be_written_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "summary.md"))
    github.add_summary(REPORT)
