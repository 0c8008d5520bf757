"""Frozen dataclasses as JSON values and back: one walk over the fields writes them, pydantic reads them.

`T.from_json(json.loads(json.dumps(value.to_json()))) == value` for every `Serializable` T. JSON has no
infinity and no NaN: those travel as their names. Torch-free; the first value that is read imports pydantic.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema

T = TypeVar("T")

_CONFIG: Final = "__pydantic_config__"

OMIT_EMPTY: Final = {"omit_empty": True}
"""The metadata of a field that is not written where it is empty."""
ELSEWHERE: Final = {"elsewhere": True}
"""The metadata of a field that JSON does not hold, such as the bytes of a program: `loads` is given it."""


def renamed(**keys: str) -> Any:
    """The `__pydantic_config__` of a class whose fields have other names in JSON, by field."""
    return {"alias_generator": lambda name: keys.get(name, name)}


def to_json(value: Any, *, derived: bool = True) -> Any:
    """A value of dataclasses, mappings and sequences as JSON.

    `derived` writes the properties that classes name in `derived`, too, for readers.
    """
    walk = partial(to_json, derived=derived)
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case Mapping():
            return {key: walk(each) for key, each in value.items()}
        case tuple() | list():
            return [walk(each) for each in value]
        case Text():
            return str(value)
        case Serializable():
            more = value.derived if derived else ()
            return fields_of(value, derived=derived) | {name: walk(getattr(value, name)) for name in more}
        case _ if hasattr(value, "to_json"):
            return value.to_json()
        case _ if is_dataclass(value):
            return fields_of(value, derived=derived)
        case _:
            return value


def fields_of(value: Any, *, derived: bool = True) -> dict[str, Any]:
    """The fields of a dataclass as a JSON object, whatever `to_json` of its own it has."""
    key = getattr(value, _CONFIG, {}).get("alias_generator", str)
    return {
        key(field.name): to_json(each, derived=derived)
        for field in fields(value)
        if "elsewhere" not in field.metadata
        if (each := getattr(value, field.name)) or "omit_empty" not in field.metadata
    }


def attributes(value: object, names: str) -> dict[str, Any]:
    """The named attributes of a value: of a dataclass what another one, or JSON, has of it."""
    return {name: getattr(value, name) for name in names.split()}


def dumps(value: Any) -> bytes:
    """The fields of a dataclass as the text of a JSON object, without those that are kept elsewhere."""
    return json.dumps(fields_of(value, derived=False), allow_nan=False).encode()


def loads(kind: type[T], text: str, **elsewhere: Any) -> T:
    """Read what `dumps` wrote, beside the fields that are kept elsewhere.

    Raises:
        ValueError, TypeError: The text is not that of such a value.
    """
    return from_json(kind, {**json.loads(text), **elsewhere})


def from_json(kind: type[T], data: Any) -> T:
    """Read what `to_json` wrote; keys that the dataclass does not have are ignored.

    Raises:
        ValueError: The data is not that of such a value; the first thing that is wrong is named.
    """
    from pydantic import ValidationError

    try:
        found: T = _adapter(kind).validate_python(data)  # type: ignore[arg-type]  # a class can be hashed
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        # Beside keys, pydantic names the functions that it tried.
        place = ".".join(each for each in map(str, first["loc"]) if "[" not in each)
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from error
    return found


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


class Serializable:
    """A dataclass that is written to JSON; `derived` names the properties that are written for readers."""

    __slots__ = ()
    derived: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back."""
        found: dict[str, Any] = to_json(self)
        return found

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Read what `to_json` wrote; raises ValueError on anything else."""
        return from_json(cls, data)


class Text:
    """A value that JSON holds as its string, which `parse` reads back."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote."""
        raise NotImplementedError

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(cls._read)

    @classmethod
    def _read(cls, data: Any) -> Self:
        if isinstance(data, cls):
            return data
        if not isinstance(data, str):
            raise ValueError(f"a text is wanted, not {type(data).__name__}")  # noqa: TRY004  # pydantic's rule
        return cls.parse(data)
