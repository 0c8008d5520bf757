"""A `Checked` as JSON values: what `aotpipe check --json` prints; docs/check.md has the schema in words."""

from __future__ import annotations

from typing import Any, Final

from aotpipe.errors import SourceLine
from aotpipe.tools.check.diagnostics import Checked, Diagnostic
from aotpipe.tools.check.source_ranges import Place

SCHEMA: Final = 1


def to_json(checked: Checked) -> dict[str, Any]:
    """The whole of it; `schema` counts incompatible changes."""
    return {
        "schema": SCHEMA,
        "name": checked.name,
        "ok": checked.ok,
        "complete": checked.complete,
        "exit_code": checked.exit_code,
        "wall_s": checked.wall_s,
        "diagnostics": [_diagnostic(each) for each in checked.diagnostics],
        "rewrites": [
            {
                "what": each.what,
                "into": each.into,
                "place": _place(each.place),
                "entry_point": each.entry_point,
            }
            for each in checked.rewrites
        ],
        "entry_points": {name: signature.to_json() for name, signature in checked.signatures.items()},
    }


def _diagnostic(each: Diagnostic) -> dict[str, Any]:
    return {
        "severity": each.severity,
        "code": each.code,
        "message": each.message,
        "reason": each.reason,
        "hint": each.hint,
        "where": _where(each.where),
        "place": _place(each.place),
        "history": [{"what": step.what, "place": _place(step.place)} for step in each.history],
        "fix": {
            "place": _place(each.fix.place),
            "replacement": each.fix.replacement,
            "line": each.fix.line,
            "verified": each.fix.verified,
            "calls": each.fix.calls,
        }
        if each.fix
        else None,
        "seen": each.seen,
        "entry_point": each.entry_point,
    }


def _where(where: SourceLine | None) -> list[Any] | None:
    return [where.path, where.line] if where else None


def _place(place: Place | None) -> dict[str, Any] | None:
    if place is None:
        return None
    return {
        "path": place.where.path,
        "line": place.line,
        "end_line": place.end_line,
        "column": place.column,
        "end_column": place.end_column,
        "function": place.function,
        "text": place.text,
    }
