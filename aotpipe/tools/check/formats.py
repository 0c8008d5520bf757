"""A `Checked` as people and tools read it: as text, and as SARIF 2.1.0 for GitHub and for editors.

The text has each diagnostic with its source line and a caret, then what is rewritten and kept. SARIF
(https://docs.oasis-open.org/sarif/sarif/v2.1.0/) counts columns in UTF-16 code units, as GitHub has it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from aotpipe import __version__
from aotpipe.errors import SourceLine
from aotpipe.model.source_ranges import Place
from aotpipe.tools.check import diagnostics
from aotpipe.tools.check.diagnostics import SEVERITIES, Checked, Diagnostic, Fix

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def render(checked: Checked, *, quiet: bool = False) -> str:
    """The whole text; without notes, rewrites and state where it is to be quiet."""
    parts = [
        "\n".join(_diagnostic(each))
        for each in checked.diagnostics
        if not (quiet and each.severity == "note")
    ]
    if quiet:
        return "\n\n".join([*parts, _summary(checked)])
    if checked.rewrites:
        rows = [
            f"  {each.place.where}  {each.what} -> {each.into}"
            + (f" ({each.entry_point})" if len(checked.signatures) > 1 and each.entry_point else "")
            for each in checked.rewrites
        ]
        parts.append("\n".join(["rewritten into the graph:", *rows]))
    for name, signature in checked.signatures.items():
        if signature.state:
            parts.append("\n".join([f"state of {name}:", *(f"  {leaf}" for leaf in signature.state)]))
    return "\n\n".join([*parts, _summary(checked)])


def _summary(checked: Checked) -> str:
    met = Counter(each.severity for each in checked.diagnostics)
    words = {severity: "obstacle" if severity == "error" else severity for severity in SEVERITIES}
    counts = [f"{met[each]} {word}{'s' * (met[each] > 1)}" for each, word in words.items() if met[each]]
    said = ", ".join(counts) or "nothing to say"
    more = sum(bool(each.specializes) for each in checked.signatures.values())
    verdict = f"becomes {f'{more + 1} programs' if more else 'one program'}"
    if not checked.ok:
        verdict = "does not become one program as it is"
    return f"{checked.name} {verdict}: {said} ({checked.wall_s:.1f} s)"


def _diagnostic(each: Diagnostic) -> Iterator[str]:
    column = f":{each.place.column}" if each.place and each.where else ""
    place = f"{each.where}{column}: " if each.where else ""
    yield f"{place}{each.severity}[{each.code}]: {each.message}"
    if each.place is not None and each.place.text:
        text, number = each.place.text.expandtabs(1), str(each.place.line)
        end = each.place.end_column if each.place.end_line == each.place.line else len(text) + 1
        yield f"  {number} | {text}"
        before, carets = " " * (each.place.column - 1), "^" * max(end - each.place.column, 1)
        yield f"  {' ' * len(number)} | {before}{carets}"
    yield from (f"  {line}" for line in each.reason.splitlines())
    if each.history:
        label = "called from" if each.code == "model-raises" else "came from"
        for step in each.history:
            yield f"  {label}: {step.what}" + (f" at {step.place.where}" if step.place else "")
    if each.fix is not None:
        executed = f"executed: eager's answers on {each.fix.calls} calls, and no obstacle"
        yield f"  fix ({executed if each.fix.verified else 'not executed'}):"
        yield f"    {each.fix.place.line} | {each.fix.line.strip()}"
    if each.hint:
        yield f"  hint: {each.hint}"


def to_sarif(checked: Checked) -> dict[str, Any]:
    """One run, with a rule for each code that was met."""
    met = sorted({each.code for each in checked.diagnostics})
    run = {
        "tool": {"driver": {"name": "aotpipe", "version": __version__, "rules": [*map(_rule, met)]}},
        "columnKind": "utf16CodeUnits",
        "results": [_result(each, met.index(each.code)) for each in checked.diagnostics],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, Any]:
    return {
        "id": code,
        "shortDescription": {"text": diagnostics.code_of(code).title},
        "help": {"text": f"docs/check.md#{code}"},
        "defaultConfiguration": {"level": diagnostics.code_of(code).severity},
    }


def _result(each: Diagnostic, rule: int) -> dict[str, Any]:
    text = "\n".join(filter(None, [each.message, each.reason, each.hint and f"hint: {each.hint}"]))
    # What identifies a diagnostic stays when lines move: the code, the file and the text of the line.
    line = each.place.text.strip() if each.place else ""
    same = f"{each.code}\0{each.where.path if each.where else ''}\0{line}"
    result: dict[str, Any] = {
        "ruleId": each.code,
        "ruleIndex": rule,
        "level": each.severity,
        "message": {"text": text},
        "partialFingerprints": {"aotpipe/v1": hashlib.sha256(same.encode()).hexdigest()[:32]},
    }
    if location := _location(each.place) or _location(each.where):
        result["locations"] = [location]
    steps = [
        {"location": {**place, "message": {"text": step.what}}}
        for step in reversed(each.history)
        if (place := _location(step.place))
    ]
    if steps:
        result["codeFlows"] = [{"threadFlows": [{"locations": steps}]}]
    if each.fix is not None and each.fix.verified:
        result["fixes"] = [_fix(each.fix, each.hint)]
    return result


def _fix(fix: Fix, hint: str) -> dict[str, Any]:
    location = _location(fix.place)
    assert location is not None
    physical = location["physicalLocation"]
    change = {"deletedRegion": physical["region"], "insertedContent": {"text": fix.replacement}}
    return {
        "description": {"text": hint or "replace the expression"},
        "artifactChanges": [{"artifactLocation": physical["artifactLocation"], "replacements": [change]}],
    }


def _location(place: Place | SourceLine | None) -> dict[str, Any] | None:
    if place is None or (isinstance(place, Place) and place.path.startswith("<")):
        return None
    region = {"startLine": place.line}
    path = Path(place.path)
    if isinstance(place, Place):
        path = Path(place.where.path)
        last = place.text if place.end_line == place.line else ""
        region["startColumn"] = _units(place.text, place.column)
        region["endLine"] = place.end_line
        region["endColumn"] = max(_units(last, place.end_column), 1)
    uri = path.as_uri() if path.is_absolute() else path.as_posix()
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}


def _units(text: str, column: int) -> int:
    """A column in UTF-16 code units, of one in characters."""
    return len(text[: column - 1].encode("utf-16-le")) // 2 + 1 if text else column
