"""Stage types as JSON values and back, for reports and for the store.

JSON has no infinity and no NaN, which errors of a failed comparison may be: those travel as their names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from aotpipe.core.stages import Finding, Latency, Parity, ParityCase
from aotpipe.errors import SourceLine


def finding_to_json(finding: Finding) -> dict[str, Any]:
    """A finding as a JSON object."""
    return {
        "severity": finding.severity,
        "code": finding.code,
        "message": finding.message,
        "hint": finding.hint,
        "where": [finding.where.path, finding.where.line] if finding.where else None,
        "entry_point": finding.entry_point,
    }


def finding_from_json(data: Mapping[str, Any]) -> Finding:
    """Read what `finding_to_json` gave."""
    where = SourceLine(*data["where"]) if data["where"] else None
    return Finding(**{**data, "where": where})


def parity_to_json(parity: Parity) -> dict[str, Any]:
    """A parity as a JSON object; `passed` and `worst` are there for readers."""
    return {
        "passed": parity.passed,
        "calls": parity.calls,
        "rule": parity.rule,
        "worst": case_to_json(parity.worst) if parity.worst else None,
        "cases": [case_to_json(case) for case in parity.cases],
    }


def parity_from_json(data: Mapping[str, Any]) -> Parity:
    """Read what `parity_to_json` gave."""
    return Parity(cases=tuple(map(case_from_json, data["cases"])), calls=data["calls"], rule=data["rule"])


def case_to_json(case: ParityCase) -> dict[str, Any]:
    """A case as a JSON object."""
    values = {field.name: getattr(case, field.name) for field in fields(case)}
    return {
        name: list(value) if isinstance(value, tuple) else number_to_json(value)
        for name, value in values.items()
    }


def case_from_json(data: Mapping[str, Any]) -> ParityCase:
    """Read what `case_to_json` gave."""
    numbers = ("max_abs_error", "eager_abs_error", "ratio", "got", "want")
    values = {**data, **{name: float(data[name]) for name in numbers}}
    return ParityCase(**{**values, "worst_index": tuple(data["worst_index"])})


def latency_to_json(latency: Latency) -> dict[str, Any]:
    """A latency as a JSON object; `ratio` is there for readers."""
    values = {field.name: getattr(latency, field.name) for field in fields(latency)}
    return {name: number_to_json(value) for name, value in {**values, "ratio": latency.ratio}.items()}


def latency_from_json(data: Mapping[str, Any]) -> Latency:
    """Read what `latency_to_json` gave."""
    values: dict[str, Any] = {
        field.name: float(data[field.name]) if field.name.endswith("_us") else data[field.name]
        for field in fields(Latency)
    }
    return Latency(**values)


def number_to_json(value: Any) -> Any:
    """A value as it is, a float that JSON lacks as its name (`inf`, `-inf`, `nan`)."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
