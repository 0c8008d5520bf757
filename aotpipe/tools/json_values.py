"""Results of the tools as JSON values: a frozen dataclass becomes an object of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from aotpipe.errors import SourceLine


def json_value(value: Any) -> Any:
    """A value as JSON has it; what has a `to_json` of its own says it by that."""
    if isinstance(value, SourceLine):
        return [value.path, value.line]
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return fields_of(value)
    if isinstance(value, Mapping):
        return {key: json_value(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(each) for each in value]
    return value


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass as a JSON object."""
    return {each.name: json_value(getattr(value, each.name)) for each in fields(value)}
