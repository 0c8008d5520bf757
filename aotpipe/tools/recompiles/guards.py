"""Reads what torch says of a guard that failed: the line, what varied, and why.

Takes torch's text (`2/1: tensor 'x' size mismatch at index 0. expected 3, actual 4`, `0/1: self.count == 1`),
the code that was compiled, and a function that gives a variable's value at that moment. Gives an `Explained`;
never raises: what torch says in another form is passed on as it is. Imports no torch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

from aotpipe.errors import SourceLine
from aotpipe.model import source

_NUMBER: Final = re.compile(r"^\d+/\d+(_\d+)?: ")
_STACK: Final = "\nUser stack trace:"
_COMMENT: Final = re.compile(r"\s+# ")
_TENSOR: Final = re.compile(
    r"tensor '(?P<name>.+)' (?P<what>[\w ]+) mismatch(?: at index (?P<axis>\d+))?\."
    r" expected (?P<want>.+?), actual (?P<got>.+)$"
)
_WHAT: Final = {"size": "shape", "stride": "stride()", "rank": "dim()", "dtype": "dtype", "device": "device"}
_SIZE: Final = re.compile(r"\.(size|stride)\(\)\[(\d+)\]")
_LONGEST: Final = 60


@dataclass(frozen=True, slots=True)
class Explained:
    """A guard that failed: where its value is used, what it was and is, and torch's reason on one line."""

    where: SourceLine | None
    value: str
    reason: str


def explain(text: str, code: CodeType | None, value_of: Callable[[str], Any]) -> Explained:
    """Explain torch's text.

    Args:
        text: The reason of one program that did not fit.
        code: What was being compiled.
        value_of: Gives the value of an expression over the variables of that code; may raise anything.
    """
    said, _, stack = _NUMBER.sub("", text).partition(_STACK)
    guard = _COMMENT.split(said.strip(), maxsplit=1)[0].strip()
    line = source.from_stack_trace(stack)
    found = _TENSOR.match(guard)
    if found:
        name, axis = found["name"], found["axis"]
        what = _WHAT.get(found["what"].strip(), found["what"].strip())
        value = f"{name}.{what}" + (f"[{axis}]" if axis else "") + f": {found['want']} -> {found['got']}"
        return Explained(line or first_use(code, name), value, guard)
    varied, value = _compared(guard, value_of)
    reason = guard if " " in guard and not _expression(guard) else f"`{_shown(guard)}` does not hold"
    return Explained(line or first_use(code, varied), value, reason)


def _compared(guard: str, value_of: Callable[[str], Any]) -> tuple[str, str]:
    """What a guard is about, and its value before and now, as far as the guard says it."""
    node = _expression(guard)
    for part in _varying(node) if node is not None else ():
        expression = ast.unparse(part)
        try:
            now = value_of(expression)
        except Exception:  # noqa: BLE001  # a user's attribute may raise anything
            return expression, ""
        match node:
            case ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value=before)]):
                return expression, _short(f"{_shown(expression)}: {before!r} -> {now!r}")
            case _:
                return expression, _short(f"{_shown(expression)}: {now!r}")
    return "", ""


def _expression(guard: str) -> ast.expr | None:
    try:
        return ast.parse(guard, mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _varying(node: ast.expr) -> Iterator[ast.expr]:
    """The operands of a guard that may vary and that can be looked at without running a program."""
    match node:
        case ast.Compare(left=left, comparators=rights):
            for side in (left, *rights):
                yield from _varying(side) if isinstance(side, ast.BoolOp | ast.Compare) else _plain(side)
        case ast.BoolOp(values=values):
            for value in values:
                yield from _varying(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _varying(operand)
        case _:
            yield from _plain(node)


def _plain(node: ast.expr) -> Iterator[ast.expr]:
    """A variable, its attributes and items, its sizes and its length."""
    inner: ast.expr = node
    while True:
        match inner:
            case ast.Attribute(value=below) | ast.Subscript(value=below, slice=ast.Constant()):
                inner = below
            case ast.Call(func=ast.Attribute(value=below, attr="size" | "stride"), args=[], keywords=[]):
                inner = below
            case ast.Call(func=ast.Name(id="len"), args=[below], keywords=[]):
                inner = below
            case ast.Name(id=name) if not name.startswith("___"):
                yield node
                return
            case _:
                return


def _shown(text: str) -> str:
    """A guard as a user writes it: `x.shape[0]` for `x.size()[0]`."""
    return _SIZE.sub(lambda m: f".{'shape' if m[1] == 'size' else 'stride()'}[{m[2]}]", text)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def first_use(code: CodeType | None, expression: str) -> SourceLine | None:
    """The first line of a function that has an expression, or what it is a part of; the function's own."""
    if code is None:
        return None
    path, first = code.co_filename, code.co_firstlineno
    body = _definition(path, first)
    wanted = _parts(expression)
    for part in wanted if body is not None else ():
        for node in ast.walk(body) if body is not None else ():
            if (
                isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
                and isinstance(node.ctx, ast.Load)
                and ast.unparse(node) == part
                # What follows a graph break begins at its line.
                and (node.lineno >= first)
            ):
                return SourceLine(source.shown(path), node.lineno)
    return SourceLine(source.shown(path), first)


def _parts(expression: str) -> list[str]:
    """An expression and what it is taken from: `a.b[0]`, `a.b`, `a`."""
    node = _expression(expression) if expression else None
    found = []
    while node is not None:
        match node:
            case ast.Attribute(value=below) | ast.Subscript(value=below):
                found.append(ast.unparse(node))
                node = below
            case ast.Call(func=ast.Attribute(value=below)):
                node = below
            case ast.Call(args=[below]):
                node = below
            case ast.Name(id=name):
                return [*found, name]
            case _:
                return found
    return found


def _definition(path: str, line: int) -> ast.AST | None:
    """The innermost function of a file that holds a line; all of the file where none does."""
    tree = source.syntax(path)
    found: ast.AST | None = tree
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
            if first <= line <= (node.end_lineno or node.lineno):
                found = node
    return found
