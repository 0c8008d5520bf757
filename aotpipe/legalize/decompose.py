"""Decomposes an exported program into a dialect's ops, and tells which ops are left that it lacks.

`decompose(entry, dialect)` gives a functional ExportedProgram; the entry's own is left as it was.
`check_supported(entries)` raises `UnsupportedOps` that names every op at once.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from torch.export import ExportedProgram

from aotpipe import source
from aotpipe.errors import AotpipeError, SourceLine, UnsupportedOps
from aotpipe.legalize import aliases, constants, decompositions, masks, wrappers
from aotpipe.stages import Dialect, ExportedEntry, LegalEntry


def decompose(entry: ExportedEntry, dialect: Dialect) -> ExportedProgram:
    """Give an entry point's program over the dialect's ops, without writes to operands.

    Raises:
        UnsupportedOps: torch itself cannot decompose the program.
    """
    table: dict[Any, Callable[..., Any]] = dict(decompositions.table(dialect))
    table |= {op: _either(first, table.get(op)) for op, first in masks.table().items()}
    try:
        with warnings.catch_warnings():
            # torch's tracing warns of its own deprecated calls.
            warnings.simplefilter("ignore")
            program = constants.lift(aliases.separate(wrappers.inline(entry.program)))
            decomposed: ExportedProgram = program.run_decompositions(table)
            return decomposed
    except AotpipeError:
        raise
    except Exception as error:
        raise UnsupportedOps(
            f"torch cannot decompose {entry.name}",
            reason=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}" if str(error) else "",
            where=source.from_exception(error),
        ) from error


def _either(first: Callable[..., Any], second: Callable[..., Any] | None) -> Callable[..., Any]:
    """A decomposition by the first, by the second where the first leaves the call as it is."""

    def decompose(*args: Any, **kwargs: Any) -> Any:
        found = first(*args, **kwargs)
        return second(*args, **kwargs) if found is NotImplemented and second is not None else found

    return decompose


def check_supported(entries: Sequence[LegalEntry]) -> None:
    """Refuse what the dialect has no lowering for.

    Raises:
        UnsupportedOps: With each op's name, how often it is met, and the user's first line with it.
    """
    counts: Counter[str] = Counter()
    lines: dict[str, SourceLine] = {}
    for entry in entries:
        for name, line, count in decompositions.unsupported(entry.graph):
            counts[name] += count
            if line is not None:
                lines.setdefault(name, line)
    if not counts:
        return
    reason = "\n".join(
        f"{name}: {count} {'call' if count == 1 else 'calls'}"
        + (f", first at {lines[name]}" if name in lines else "")
        for name, count in sorted(counts.items())
    )
    total = sum(counts.values())
    raise UnsupportedOps(
        f"{len(counts)} {'op has' if len(counts) == 1 else 'ops have'} no lowering ({total} in all): "
        + ", ".join(sorted(counts)),
        reason=reason,
        hint="write the named lines with other ops, or take them out of the exported part of the model",
        where=next((lines[name] for name in sorted(counts) if name in lines), None),
    )
