"""A `Recompiles` as JSON values: what `aotpipe recompiles --json` prints."""

from __future__ import annotations

from typing import Any, Final

from aotpipe.errors import SourceLine
from aotpipe.tools.recompiles.results import Program, Recompiles, Way

SCHEMA: Final = 1


def to_json(found: Recompiles) -> dict[str, Any]:
    """The whole of it; `schema` counts incompatible changes."""
    return {
        "schema": SCHEMA,
        "name": found.name,
        "calls": list(found.calls),
        "wall_s": found.wall_s,
        "ways": [_way(way) for way in found.ways],
    }


def _way(way: Way) -> dict[str, Any]:
    return {
        "name": way.name,
        "count": way.count,
        "so_far": list(way.so_far),
        "programs": [_program(program) for program in way.programs],
        "refused": [{"call": each.call, "reason": each.reason} for each in way.refused],
        "compared": way.compared,
        # JSON has no infinity, which is the share of an answer of another shape.
        "ratio": way.ratio if way.ratio < float("inf") else None,
        "notes": list(way.notes),
        "error": way.error.to_json() if way.error else None,
    }


def _program(program: Program) -> dict[str, Any]:
    return {
        "number": program.number,
        "call": program.call,
        "function": program.function,
        "cause": program.cause,
        "where": _where(program.where),
        "value": program.value,
        "reason": program.reason,
        "ops": program.ops,
    }


def _where(where: SourceLine | None) -> list[Any] | None:
    return [where.path, where.line] if where else None
