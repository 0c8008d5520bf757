"""SARIF validates against the schema of OASIS (without its descriptions), whatever happened."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from aotpipe.build.formats.sarif import to_sarif
from aotpipe.build.report import Failure, Origin, Report
from aotpipe.errors import ParityError, SourceLine, UnsupportedOp, UnsupportedOps
from tests.unit.build.reports import REPORT

SCHEMA = json.loads((Path(__file__).parent / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
OPS = UnsupportedOps(
    "2 ops have no lowering",
    where=SourceLine("net.py", 5),
    ops=(
        UnsupportedOp("aten.a", "no", 1, SourceLine("net.py", 5)),
        UnsupportedOp("aten.b", "never", 2, SourceLine("/elsewhere/a b.py", 9)),
    ),
)


def sarif(report: Report) -> dict[str, Any]:
    """The run of a report, which is valid."""
    data = json.loads(to_sarif(report))
    jsonschema.Draft4Validator(SCHEMA).validate(data)
    (run,) = data["runs"]
    return run  # type: ignore[no-any-return]


def test_the_schema_refuses_what_is_none():
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft4Validator(SCHEMA).validate({"version": "2.1.0", "runs": [{"tool": {}}]})


def test_each_failure_and_each_finding_is_a_result():
    run = sarif(REPORT)
    assert [(each["ruleId"], each["level"]) for each in run["results"]] == [
        ("ParityError", "error"),
        ("unused-input", "warning"),
        ("constant-input", "note"),
    ]
    place = run["results"][1]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "model.py"}, "region": {"startLine": 7}}
    assert run["invocations"][0]["exitCode"] == ParityError.exit_code
    assert not run["invocations"][0]["executionSuccessful"]


def test_each_op_without_a_lowering_has_its_line():
    report = Report(name="net", failure=Failure.of(OPS), origin=Origin(source="net.py"))
    run = sarif(report)
    places = [each["locations"][0]["physicalLocation"] for each in run["results"]]
    assert [(each["artifactLocation"]["uri"], each["region"]["startLine"]) for each in places] == [
        ("net.py", 5),
        ("file:///elsewhere/a%20b.py", 9),
    ]


def test_what_has_no_line_is_at_the_models_file():
    failure = Failure(error="Killed", stage="export", exit_code=137, message="killed")
    run = sarif(Report(name="net", failure=failure, origin=Origin(source="net.py")))
    assert run["results"][0]["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": "net.py"}}}]
    assert sarif(replace(REPORT, targets=(), findings=()))["results"] == []
