"""Exact places in Python source: of a running frame, of syntax, and of what an expression decides.

Takes frames and code objects; gives a `Place` with the line and the columns of the expression that is being
computed (Python keeps them for each instruction). `around(place)` gives the syntax that holds it, and
`deciding(place)` the statement or operator whose outcome it decides. Never raises for source that is not
there: a place then has no text and no syntax.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from types import CodeType, FrameType
from typing import Any, Final

from aotpipe.core.serialization import fields_of
from aotpipe.errors import SourceLine
from aotpipe.model import source

# What computes for a model rather than being one.
_TOOLS: Final = ("torch", "torch_mlir", "functorch", "iree", "sympy", "numpy", "scipy", "aotpipe")
_Located = ast.expr | ast.stmt | ast.ExceptHandler
ASSERT: Final = "an assert of the program"
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

    def holds(self, inner: Place) -> bool:
        """Whether another place is a part of this one."""
        return (
            self.path == inner.path
            and (self.line, self.column) <= (inner.line, inner.column)
            and (inner.end_line, inner.end_column) <= (self.end_line, self.end_column)
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object, with the path as people read it and the source line."""
        return {**fields_of(self), "path": self.where.path, "text": self.text}


@cache
def is_model_file(path: str) -> bool:
    """Whether a file may hold a model: the user's own, an installed package, or code without a file."""
    if path.startswith("<"):
        return not path.startswith(_GENERATED)
    installed = re.split(r"(?:site|dist)-packages/", path)
    if len(installed) > 1:
        return not installed[-1].startswith(tuple(f"{tool}/" for tool in _TOOLS))
    return source.is_user_file(path)


def is_model(frame: FrameType) -> bool:
    """Whether a frame runs a model's code."""
    return is_model_file(frame.f_code.co_filename)


def model_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of a model's code."""
    while frame is not None and not is_model_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def of_frame(frame: FrameType) -> Place:
    """What a frame is computing now."""
    return at(frame.f_code, frame.f_lasti) or of_line(
        frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname
    )


@cache
def at(code: CodeType, instruction: int) -> Place | None:
    """What an instruction of a code object computes; None where Python does not know."""
    position = next(islice(code.co_positions(), instruction // 2, None), ()) if instruction >= 0 else ()
    line, end_line, column, end_column = position or (None,) * 4
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return _span(code.co_filename, (line, column), (end_line, end_column), code.co_qualname)


def _span(path: str, start: tuple[int, int], end: tuple[int, int], function: str) -> Place:
    """A place of lines and columns that count bytes from 0, as Python has them."""
    return Place(path, start[0], end[0], _characters(path, *start) + 1, _characters(path, *end) + 1, function)


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


def of_node(path: str, node: _Located, function: str = "") -> Place:
    """A part of the syntax; of a statement with a body, its first line."""
    whole = _whole(path, node, function)
    if isinstance(node, ast.stmt) and hasattr(node, "body") and whole.end_line > whole.line:
        end = of_line(path, whole.line).end_column
        return replace(whole, end_line=whole.line, end_column=end)
    return whole


def _whole(path: str, node: _Located, function: str = "") -> Place:
    line, column = node.lineno, node.col_offset
    return _span(path, (line, column), (node.end_lineno or line, node.end_col_offset or column), function)


def around(place: Place) -> list[ast.AST]:
    """The syntax that holds a place, from the innermost out; empty where there is no source."""
    tree = source.syntax(place.path)
    found: list[ast.AST] = []
    level: list[ast.AST] = [tree] if tree else []
    while level:
        node = next(
            (n for n in level if not isinstance(n, _Located) or _whole(place.path, n).holds(place)), None
        )
        if node is None:
            break
        found.append(node)
        level = _children(node)
    return found[::-1]


def _children(node: ast.AST) -> list[ast.AST]:
    """The nearest nodes below that have a line and a column."""
    found: list[ast.AST] = []
    for child in ast.iter_child_nodes(node):
        found += [child] if isinstance(child, _Located) else _children(child)
    return found


@dataclass(frozen=True, slots=True)
class Deciding:
    """A construct of Python: what it is called, the op in its place, and the function around it."""

    what: str
    into: str
    node: ast.AST
    function: source.Definition | None


def deciding(place: Place) -> Deciding | None:
    """What an expression decides; None where it decides nothing, or there is no source."""
    return next(constructs(place), None)


def constructs(place: Place) -> Iterator[Deciding]:
    """The construct that an expression decides, and those around it in the same test."""
    parents = around(place)
    function = next((node for node in parents if isinstance(node, source.Definition)), None)
    inner: ast.AST | None = None
    for node in parents:
        found = _construct(node, inner)
        if found is not None:
            yield Deciding(*found, node, function)
        if isinstance(node, ast.stmt | ast.IfExp):
            return
        inner = node


_TESTS: Final[Mapping[type[ast.AST], tuple[str, str]]] = {
    ast.If: ("if", "torch.cond"),
    ast.While: ("while", "torch.while_loop"),
    ast.IfExp: ("conditional expression", "torch.cond"),
    ast.Assert: ("assert", ASSERT),
}


def _construct(node: ast.AST, inner: ast.AST | None) -> tuple[str, str] | None:
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
            return _TESTS[type(node)] if test is inner else None
        case ast.For(iter=ast.Call(func=ast.Name(id="range")) as items) if items is inner:
            return "for over range", "torch.while_loop"
        case ast.BoolOp(op=op):
            name = "and" if isinstance(op, ast.And) else "or"
            return name, f"torch.logical_{name}"
        case ast.UnaryOp(op=ast.Not()):
            return "not", "torch.logical_not"
        case ast.Compare(ops=ops) if len(ops) > 1:
            return "chained comparison", "torch.logical_and"
        case ast.ListComp(generators=[each]) if inner in each.ifs:
            return "comprehension", "torch.cond"
        case _:
            return None
