"""A report as JUnit XML: one test per target, and in it what was wrong."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from aotpipe.build.report.contents import Report, TargetReport


def to_junit(report: Report) -> str:
    """The XML text, one test case per target; a program that was not run here is a skipped test."""
    failed = sum(row.status == "failed" for row in report.targets)
    skipped = sum(row.status == "compiled" for row in report.targets)
    suite = ET.Element(
        "testsuite",
        name=f"aotpipe.{report.name}",
        tests=str(len(report.targets)),
        failures=str(failed),
        errors="0",
        skipped=str(skipped),
        time=f"{report.wall_s:.3f}",
    )
    for row in report.targets:
        suite.append(_case(report, row))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _case(report: Report, row: TargetReport) -> ET.Element:
    seconds = sum(cost.wall_s for cost in report.stages if cost.target == row.target)
    case = ET.Element("testcase", classname=report.name, name=row.target, time=f"{seconds:.3f}")
    match row.status:
        case "failed":
            failure = ET.SubElement(case, "failure", type=row.stage, message=_printable(row.reason))
            failure.text = _printable(_failures(row))
        case "compiled":
            ET.SubElement(case, "skipped", message=_printable(row.reason))
        case "executed":
            ET.SubElement(case, "system-out").text = _printable(_passed(row))
    return case


def _failures(row: TargetReport) -> str:
    if row.parity is None:
        return row.reason
    bad = [one for one in row.parity.cases if not one.passed]
    return "\n".join(
        f"{one.entry_point} {one.case} {one.output}[{', '.join(map(str, one.worst_index))}]: "
        f"got {one.got!r}, want {one.want!r}, {one.ratio:.3g} of the allowed error {one.message}".rstrip()
        for one in bad
    )


def _passed(row: TargetReport) -> str:
    if row.parity is None or row.parity.worst is None:
        return ""
    return f"{row.parity.calls} calls, worst {row.parity.worst.ratio:.3g} of the allowed error"


def _printable(text: str) -> str:
    """XML 1.0 cannot hold control characters, which a compiler's message may."""
    return "".join(char for char in text if char in "\t\n" or char >= " ")
