"""Exact places in Python source: of a running frame, and of the statements around it.

Takes frames and code objects; gives a `Place` with the line and the columns of the expression that is being
computed (Python keeps them for each instruction), and the syntax around it. Never raises for source that is
not there: a place then has no text and no syntax.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from types import CodeType, FrameType
from typing import Any, Final

from aotpipe.core.serialization import fields_of
from aotpipe.errors import SourceLine
from aotpipe.model import source

# What computes for a model rather than being one.
_TOOLS: Final = ("torch", "torch_mlir", "functorch", "iree", "sympy", "numpy", "scipy", "aotpipe")
_GENERATED: Final = ("<frozen", "<__array_function__", "<eval_with_key", "<attrs", "<@beartype")


@dataclass(frozen=True, slots=True)
class Place:
    """An expression or a statement in source; columns count characters from 1 and end before `end_column`."""

    path: str
    line: int
    end_line: int
    column: int
    end_column: int
    function: str = field(default="", compare=False)

    @property
    def where(self) -> SourceLine:
        """The line as people read it."""
        return SourceLine(source.shown(self.path), self.line)

    @property
    def text(self) -> str:
        """The source line, without its end; empty where there is no source."""
        return linecache.getline(self.path, self.line).rstrip()

    @property
    def expression(self) -> str:
        """The source of the expression, on one line."""
        if self.end_line == self.line:
            return self.text[self.column - 1 : self.end_column - 1]
        lines = [linecache.getline(self.path, line) for line in range(self.line, self.end_line + 1)]
        if not all(lines):
            return ""
        lines[-1] = lines[-1][: self.end_column - 1]
        return re.sub(r"\s+", " ", "".join([lines[0][self.column - 1 :], *lines[1:]])).strip()

    def to_json(self) -> dict[str, Any]:
        """A JSON object, with the path as people read it and the source line."""
        return {**fields_of(self), "path": self.where.path, "text": self.text}


def is_model_file(path: str) -> bool:
    """Whether a file may hold a model: the user's own, an installed package, or code without a file."""
    if path.startswith("<"):
        return not path.startswith(_GENERATED)
    installed = re.split(r"(?:site|dist)-packages/", path)
    if len(installed) > 1:
        return not installed[-1].startswith(tuple(f"{tool}/" for tool in _TOOLS))
    return source.is_user_file(path)


_is_model_file = cache(is_model_file)


def is_model(frame: FrameType) -> bool:
    """Whether a frame runs a model's code."""
    return _is_model_file(frame.f_code.co_filename)


def model_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of a model's code."""
    while frame is not None and not _is_model_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's own code."""
    while frame is not None and not source.is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def of_frame(frame: FrameType) -> Place:
    """What a frame is computing now."""
    return at(frame.f_code, frame.f_lasti) or of_line(
        frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname
    )


@cache
def _positions(code: CodeType) -> tuple[tuple[int | None, ...], ...]:
    return tuple(code.co_positions())


@cache
def at(code: CodeType, instruction: int) -> Place | None:
    """What an instruction of a code object computes; None where Python does not know."""
    index = instruction // 2
    positions = _positions(code)
    line, end_line, column, end_column = positions[index] if 0 <= index < len(positions) else (None,) * 4
    if line is None or end_line is None or column is None or end_column is None:
        return None
    path = code.co_filename
    return Place(
        path,
        line,
        end_line,
        _characters(path, line, column) + 1,
        _characters(path, end_line, end_column) + 1,
        code.co_qualname,
    )


def _characters(path: str, line: int, count: int) -> int:
    """Python counts columns in bytes."""
    text = linecache.getline(path, line)
    return count if text.isascii() else len(text.encode()[:count].decode(errors="ignore"))


def of_line(path: str, line: int, function: str = "") -> Place:
    """A whole line."""
    text = linecache.getline(path, line).rstrip()
    start = len(text) - len(text.lstrip())
    return Place(path, line, line, start + 1, max(len(text), start) + 1, function)


def of_source_line(where: SourceLine | None) -> Place | None:
    """A whole line of a source that can be read."""
    place = of_line(where.path, where.line) if where else None
    return place if place is not None and place.text else None


def of_node(path: str, node: ast.expr | ast.stmt, function: str = "") -> Place:
    """A part of the syntax; of a statement with a body, its first line."""
    line, column = node.lineno, node.col_offset
    end_line, end_column = node.end_lineno or line, node.end_col_offset or column
    if hasattr(node, "body") and isinstance(node, ast.stmt) and end_line > line:
        whole = of_line(path, line, function)
        end_line, end_column = line, len(linecache.getline(path, line).rstrip().encode())
        return Place(path, line, line, _characters(path, line, column) + 1, whole.end_column, function)
    return Place(
        path,
        line,
        end_line,
        _characters(path, line, column) + 1,
        _characters(path, end_line, end_column) + 1,
        function,
    )


def around(place: Place) -> list[ast.AST]:
    """The syntax that holds a place, from the innermost out; empty where there is no source."""
    tree = source.syntax(place.path)
    start, end = (place.line, place.column - 1), (place.end_line, place.end_column - 1)
    found: list[ast.AST] = []

    def inside(node: ast.AST) -> bool:
        if not isinstance(node, ast.expr | ast.stmt | ast.ExceptHandler):
            return True
        first = (node.lineno, _characters(place.path, node.lineno, node.col_offset))
        last_line = node.end_lineno or node.lineno
        last = (last_line, _characters(place.path, last_line, node.end_col_offset or 0))
        return first <= start and end <= last

    level: list[ast.AST] = [tree] if tree else []
    while level:
        node = next(filter(inside, level), None)
        if node is None:
            break
        found.append(node)
        level = _children(node)
    return found[::-1]


def _children(node: ast.AST) -> list[ast.AST]:
    """Children that have places of their own, those that have none replaced by theirs."""
    found: list[ast.AST] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr | ast.stmt | ast.ExceptHandler):
            found.append(child)
        else:
            found += _children(child)
    return found


def own(node: ast.AST) -> Iterator[ast.AST]:
    """All syntax below a function's that belongs to the same scope."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield from own(child)
