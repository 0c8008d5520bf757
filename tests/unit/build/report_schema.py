"""Writes docs/report.schema.json, the JSON Schema of a report, from the types that are written.

usage: python -m tests.unit.build.report_schema        (a test says when that is needed)

Every object is closed: a field that no type has is an error.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from aotpipe.build.report import Report
from aotpipe.core.serialization import Serializable, Text
from aotpipe.core.signature import Signature
from aotpipe.errors import SourceLine

PATH = Path(__file__).resolve().parents[3] / "docs" / "report.schema.json"
# JSON has no number for these.
FLOAT = {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}]}
SIMPLE: Mapping[Any, Any] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: FLOAT,
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}


class _Schema:
    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type as `core.serialization.to_json` writes its values."""
        if kind in SIMPLE:
            return dict(SIMPLE[kind])
        if kind is Any or kind is object:
            return {}
        origin, given = get_origin(kind), get_args(kind)
        if isinstance(kind, typing.TypeAliasType if hasattr(typing, "TypeAliasType") else ()):
            return self.of(kind.__value__)
        if origin is Literal:
            return {"enum": list(given)}
        if origin in (typing.Union, types.UnionType):
            return {"anyOf": [self.of(each) for each in given]}
        if origin is tuple:
            return self._tuple(given)
        if origin is not None and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(given[1])}
        return self._named(kind)

    def _tuple(self, given: tuple[Any, ...]) -> dict[str, Any]:
        if len(given) == 2 and given[1] is Ellipsis:
            return {"type": "array", "items": self.of(given[0])}
        return {"type": "array", "prefixItems": [self.of(each) for each in given], "minItems": len(given)}

    def _named(self, kind: type) -> dict[str, Any]:
        if kind is Signature:
            return {
                "type": "object",
                "description": "what an entry point takes and gives, as docs/bundle.md says",
            }
        if issubclass(kind, Text):
            return {"type": "string"}
        if kind.__name__ not in self.definitions:
            self.definitions[kind.__name__] = {}
            self.definitions[kind.__name__] = self._body(kind)
        return {"$ref": f"#/$defs/{kind.__name__}"}

    def _body(self, kind: type) -> dict[str, Any]:
        hints = get_type_hints(kind)
        if issubclass(kind, tuple):
            return self._tuple(tuple(hints[name] for name in kind._fields))  # type: ignore[attr-defined]
        assert is_dataclass(kind), kind
        written = [field for field in fields(kind) if "elsewhere" not in field.metadata]
        properties = {field.name: self.of(hints[field.name]) for field in written}
        required = [field.name for field in written if "omit_empty" not in field.metadata]
        for name in kind.derived if issubclass(kind, Serializable) else ():
            attribute = getattr(kind, name)
            if isinstance(attribute, property):
                properties[name] = self.of(get_type_hints(attribute.fget)["return"])
            else:
                properties[name] = {"const": attribute}
            required.append(name)
        summary = (kind.__doc__ or "").splitlines()[0]
        return {
            "description": summary,
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }


def schema() -> dict[str, Any]:
    """The schema of `report.json`."""
    made = _Schema()
    root = made.of(Report)
    assert SourceLine.__name__ in made.definitions
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "The report of aotpipe build"}
    return {**head, **root, "$defs": dict(sorted(made.definitions.items()))}


def text() -> str:
    """The bytes of docs/report.schema.json."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
