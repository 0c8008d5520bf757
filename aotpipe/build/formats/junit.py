"""A report as JUnit XML, for CI: a test for each target, and one for each budget."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from aotpipe.build.report import Budget, Failure, Report, TargetReport
from aotpipe.validate.parity import describe


def to_junit(report: Report) -> str:
    """The report as JUnit XML: what failed before there were targets is a test `build` with an error.

    What was not run, or is unproven where that is allowed, is skipped.
    """
    cases = [_case(report, row) for row in report.targets]
    cases += [_budget(report, each) for each in report.budgets]
    if report.failure is not None:
        cases.append(_build(report, report.failure))
    suite = ET.Element(
        "testsuite",
        name=f"aotpipe.{report.name}",
        tests=str(len(cases)),
        failures=str(_count(cases, "failure")),
        errors=str(_count(cases, "error")),
        skipped=str(_count(cases, "skipped")),
        time=f"{report.wall_s:.3f}",
        timestamp=report.origin.date.removesuffix("Z"),
    )
    suite.extend(cases)
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _count(cases: list[ET.Element], kind: str) -> int:
    return sum(case.find(kind) is not None for case in cases)


def _case(report: Report, row: TargetReport) -> ET.Element:
    seconds = sum(cost.wall_s for cost in report.stages if cost.target == row.target)
    case = ET.Element("testcase", classname=report.name, name=row.target, time=f"{seconds:.3f}")
    if row.failure is not None:
        cases = row.parity.cases if row.parity else ()
        bad = [describe(one) for one in cases if not one.passed] or [row.reason]
        return _ended(case, "failure", row.failure, row.failure.message, "\n".join(bad))
    if row.status != "executed":
        ET.SubElement(case, "skipped", message=_printable(row.reason))
        return case
    worst = row.parity.worst if row.parity else None
    said = (
        f"{row.parity.calls} calls, worst {worst.ratio:.3g} of the allowed error"
        if row.parity and worst
        else ""
    )
    ET.SubElement(case, "system-out").text = said
    return case


def _budget(report: Report, budget: Budget) -> ET.Element:
    name = f"{budget.target}: {budget.name}"
    case = ET.Element("testcase", classname=f"{report.name}.budget", name=name, time="0")
    if not budget.passed:
        ET.SubElement(case, "failure", type="budget", message=_printable(str(budget)))
    return case


def _build(report: Report, failure: Failure) -> ET.Element:
    case = ET.Element("testcase", classname=report.name, name="build", time=f"{report.wall_s:.3f}")
    return _ended(case, "error", failure, failure.message, str(failure))


def _ended(case: ET.Element, kind: str, failure: Failure, message: str, text: str) -> ET.Element:
    if failure.where is not None:
        # What pytest writes, and GitLab and Jenkins show.
        case.set("file", failure.where.path)
        case.set("line", str(failure.where.line))
    ET.SubElement(case, kind, type=failure.stage, message=_printable(message)).text = _printable(text)
    return case


def _printable(text: str) -> str:
    """XML 1.0 cannot hold control characters, nor lone surrogates, which a compiler's message may."""
    return "".join(
        char
        for char in text
        if char in "\t\n" or (char >= " " and char not in "\ufffe\uffff" and not "\ud800" <= char <= "\udfff")
    )
