"""One test per target."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from aotpipe.build.report.junit import to_junit
from tests.unit.build.report.samples import REPORT


def test_junit_has_one_test_per_target():
    suite = ET.fromstring(to_junit(REPORT).encode())
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    by_name = {case.get("name"): case for case in suite}
    assert by_name["iree-cpu-host"].findtext("system-out") == "3 calls, worst 0.12 of the allowed error"
    assert by_name["iree-cpu-aarch64"].find("skipped") is not None
    failure = by_name["iree-vmvx"].find("failure")
    assert failure is not None
    assert failure.get("type") == "validate"
    assert "is nan, where the reference is 1.0" in (failure.text or "")
