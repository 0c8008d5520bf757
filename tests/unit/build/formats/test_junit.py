"""JUnit XML: a test per target, per budget, and one for a build that came to none."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

from aotpipe.build.formats.junit import to_junit
from aotpipe.build.report import Budget, Failure, Report
from aotpipe.errors import SourceLine
from tests.unit.build.reports import REPORT


def test_one_test_per_target():
    suite = ET.fromstring(to_junit(REPORT).encode())
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    by_name = {case.get("name"): case for case in suite}
    assert by_name["iree-cpu-host"].findtext("system-out") == "3 calls, worst 0.12 of the allowed error"
    assert by_name["iree-cpu-aarch64"].find("skipped") is not None
    failure = by_name["iree-vmvx"].find("failure")
    assert failure is not None
    assert failure.get("type") == "validate"
    assert "is nan, where the reference is 1.0" in (failure.text or "")


def test_a_budget_is_a_test():
    budgets = (
        Budget(target="iree-vmvx", name="size", limit="2 MB", found="3 MB", passed=False),
        Budget(target="iree-vmvx", name="parity", limit="50%", found="2%", passed=True),
    )
    suite = ET.fromstring(to_junit(replace(REPORT, targets=(), budgets=budgets)).encode())
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    failure = suite[0].find("failure")
    assert failure is not None
    assert failure.get("message") == "iree-vmvx: size is 3 MB, 2 MB is allowed"


def test_a_build_without_targets_is_an_error_at_its_line():
    failure = Failure(
        error="ExportFailed",
        stage="export",
        exit_code=20,
        message="no\x1b[0m \ud800",
        reason="because",
        where=SourceLine("net.py", 3),
    )
    suite = ET.fromstring(to_junit(Report(name="net", failure=failure)).encode())
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")
    (case,) = suite
    assert (case.get("name"), case.get("file"), case.get("line")) == ("build", "net.py", "3")
    error = case.find("error")
    assert error is not None
    assert error.get("type") == "export"
    assert "because" in (error.text or "")
