"""A report as SARIF 2.1.0, which code hosts and editors show beside the user's lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from aotpipe import __version__
from aotpipe.build.report import Problem, Report
from aotpipe.errors import SourceLine

_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def to_sarif(report: Report) -> str:
    """The report as one SARIF run: a result for each problem, at its line or else at the model's file."""
    problems = list(report.problems)
    rules = sorted({problem.code for problem in problems})
    failure = next(report.failures, None)
    invocation: dict[str, Any] = {"executionSuccessful": report.ok, "exitCode": report.exit_code}
    if report.origin.command:
        invocation["commandLine"] = report.origin.command
    if failure is not None:
        invocation["exitCodeDescription"] = failure.message
    driver = {"name": "aotpipe", "semanticVersion": __version__, "rules": [{"id": rule} for rule in rules]}
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "results": [_result(problem, rules.index(problem.code), report) for problem in problems],
        "columnKind": "unicodeCodePoints",
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(problem: Problem, rule: int, report: Report) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": problem.code,
        "ruleIndex": rule,
        "level": problem.level,
        "message": {"text": problem.message},
    }
    if problem.where is not None:
        result["locations"] = [_location(problem.where.path, problem.where)]
    elif report.origin.source:
        result["locations"] = [_location(report.origin.source, None)]
    return result


def _location(path: str, where: SourceLine | None) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": uri(path)}}
    if where is not None and where.line > 0:
        place["region"] = {"startLine": where.line}
    return {"physicalLocation": place}


def uri(path: str) -> str:
    """A path below the working folder as a relative reference, another as a `file:` URI."""
    absolute = Path(path).absolute()
    try:
        return quote(absolute.relative_to(Path.cwd()).as_posix())
    except ValueError:
        return absolute.as_uri()
