"""A `Checked` as SARIF 2.1.0, the form in which GitHub and editors take the results of a static check.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/. Columns count UTF-16 code units, as GitHub has it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

from aotpipe import __version__
from aotpipe.tools.check import diagnostics
from aotpipe.tools.check.diagnostics import Checked, Diagnostic
from aotpipe.tools.check.source_ranges import Place

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {"error": "error", "warning": "warning", "note": "note"}


def to_sarif(checked: Checked) -> dict[str, Any]:
    """One run, with a rule for each code that was met."""
    met = sorted({each.code for each in checked.diagnostics})
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "aotpipe",
                        "version": __version__,
                        "rules": [_rule(code) for code in met],
                    }
                },
                "columnKind": "utf16CodeUnits",
                "results": [_result(each, met.index(each.code)) for each in checked.diagnostics],
            }
        ],
    }


def _rule(code: str) -> dict[str, Any]:
    return {
        "id": code,
        "shortDescription": {"text": diagnostics.code_of(code).title},
        "help": {"text": f"docs/check.md#{code}"},
        "defaultConfiguration": {"level": _LEVELS[diagnostics.code_of(code).severity]},
    }


def _result(each: Diagnostic, rule: int) -> dict[str, Any]:
    text = "\n".join(filter(None, [each.message, each.reason, each.hint and f"hint: {each.hint}"]))
    result: dict[str, Any] = {
        "ruleId": each.code,
        "ruleIndex": rule,
        "level": _LEVELS[each.severity],
        "message": {"text": text},
        "partialFingerprints": {"aotpipe/v1": _fingerprint(each)},
    }
    if location := _location(each.place):
        result["locations"] = [location]
    elif each.where:
        result["locations"] = [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(each.where.path)},
                    "region": {"startLine": each.where.line},
                }
            }
        ]
    steps = [
        {"location": {**place, "message": {"text": step.what}}}
        for step in reversed(each.history)
        if (place := _location(step.place))
    ]
    if steps:
        result["codeFlows"] = [{"threadFlows": [{"locations": steps}]}]
    if each.fix is not None and each.fix.verified:
        result["fixes"] = [_fix(each)]
    return result


def _fix(each: Diagnostic) -> dict[str, Any]:
    assert each.fix is not None
    location = _location(each.fix.place)
    assert location is not None
    physical = location["physicalLocation"]
    change = {"deletedRegion": physical["region"], "insertedContent": {"text": each.fix.replacement}}
    return {
        "description": {"text": each.hint or "replace the expression"},
        "artifactChanges": [{"artifactLocation": physical["artifactLocation"], "replacements": [change]}],
    }


def _location(place: Place | None) -> dict[str, Any] | None:
    if place is None or place.path.startswith("<"):
        return None
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(place.where.path)},
            "region": {
                "startLine": place.line,
                "startColumn": _units(place.text, place.column),
                "endLine": place.end_line,
                "endColumn": max(
                    _units(place.text, place.end_column)
                    if place.end_line == place.line
                    else place.end_column,
                    1,
                ),
            },
        }
    }


def _units(text: str, column: int) -> int:
    """A column in UTF-16 code units, of one in characters."""
    return len(text[: column - 1].encode("utf-16-le")) // 2 + 1 if text else column


def _uri(path: str) -> str:
    return Path(path).as_uri() if Path(path).is_absolute() else Path(path).as_posix()


def _fingerprint(each: Diagnostic) -> str:
    """Stays when lines move: the code, the file and the text of the line."""
    line = each.place.text.strip() if each.place else ""
    path = each.where.path if each.where else ""
    return hashlib.sha256(f"{each.code}\0{path}\0{line}".encode()).hexdigest()[:32]
