"""Keeps with each statement of a function how its author wrote it: the text, and the comments above it.

`mark(function, lines)` sets `leading` (the comment lines before a statement), `verbatim` (its own lines) and
`dumped` (what it was then), for `layout` to print what has not been changed as it was.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence


def mark(function: ast.FunctionDef, lines: Sequence[str]) -> None:
    """Mark the statements of a function.

    Args:
        function: As it was parsed.
        lines: Of its file.
    """
    first = _begin(function.body[0])
    _mark(function.body, first - 1 - _comments_above(lines, first), lines)


def _mark(body: Sequence[ast.stmt], end: int, lines: Sequence[str]) -> None:
    """Mark a block that begins after a line."""
    for node in body:
        above = [line.strip() for line in lines[end : node.lineno - 1]]
        while above and not above[0]:
            above.pop(0)
        node.leading = tuple(above) if all(not line or line.startswith("#") for line in above) else ()  # type: ignore[attr-defined]
        last = node.end_lineno or node.lineno
        text = textwrap.dedent("\n".join(lines[node.lineno - 1 : last]))
        node.verbatim = tuple(text.splitlines())  # type: ignore[attr-defined]
        node.dumped = ast.dump(node)  # type: ignore[attr-defined]
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            for field in ("body", "orelse", "finalbody"):
                inner = getattr(node, field, None)
                if inner:
                    first = min(
                        [inner[0].lineno, *(each.lineno for each in getattr(inner[0], "decorator_list", []))]
                    )
                    _mark(inner, max(node.lineno, first - 1 - _comments_above(lines, first)), lines)
        end = last


def _comments_above(lines: Sequence[str], line: int) -> int:
    """How many lines of comments stand right above a line."""
    count = 0
    while line - 2 - count >= 0 and lines[line - 2 - count].strip().startswith("#"):
        count += 1
    return count


def _begin(node: ast.stmt) -> int:
    """The first line of a statement, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])
